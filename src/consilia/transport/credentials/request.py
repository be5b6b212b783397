"""What a member sends to the consortium's officer: name, role and public keys, under its own signatures; all public."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from consilia.core.canonical import Json, canonical_bytes
from consilia.crypto.keys import KEY_SIZE
from consilia.crypto.signing import SIGNATURE_SIZE, verify
from consilia.secagg.roster import Identity
from consilia.transport.credentials import files
from consilia.transport.credentials.certificates import UNREADABLE, on_p256
from consilia.transport.credentials.names import ROLES, Role, dns, name
from consilia.transport.credentials.reading import Reader, encode, encoded, hexadecimal, one_of, text

MOST_BYTES = 1 << 14
_PURPOSE = b"consilia request 1\n"
_START = "a member makes its request, NAME/NAME.request.json, with consilia roster add NAME --role ROLE"
_DIGITS = 24  # 96 bits: keys that give a wanted fingerprint take 2^96 tries
_KEY = hexadecimal(KEY_SIZE)


def _serial(value: object) -> str | None:
    return None if value is None else str(text(40)(value))


_FIELDS = {
    "format": one_of(["consilia request 1"]), "name": name, "role": one_of(ROLES), "verifying": _KEY, "sealing": _KEY,
    "csr": encoded(2048), "renews": _serial, "signature": hexadecimal(SIGNATURE_SIZE),
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A wish for a certificate.

    Attributes:
        name: What the member is called.
        role: What it wants to be.
        verifying: Its public Ed25519 key; its private half signed the request, so nobody can put another key in.
        sealing: Its public X25519 key.
        csr: A PKCS #10 request, DER: shows that the member holds the private key for TLS. Only key and name are taken.
        renews: Serial of the certificate it takes the place of, in hex; None for a new member. An old request cannot come back.
        signature: Of all the above.
    """

    name: str
    role: Role
    verifying: bytes
    sealing: bytes
    csr: bytes
    renews: str | None
    signature: bytes

    @classmethod
    def made(cls, identity: Identity, role: Role, key: ec.EllipticCurvePrivateKey, renews: str | None) -> "Request":
        """Return a signed request for a certificate of this key."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
        csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
        unsigned = cls(identity.name, role, identity.signing.public, identity.sealing.public,
                       csr.public_bytes(serialization.Encoding.DER), renews, b"")  # fmt: skip
        signature = identity.signing.sign(unsigned._text)
        return cls(unsigned.name, role, unsigned.verifying, unsigned.sealing, unsigned.csr, renews, signature)

    @classmethod
    def read(cls, source: Path | bytes) -> "Request":
        """Read a request and check its signatures.

        Raises:
            StoreError: With every fault.
        """
        raw = source if isinstance(source, bytes) else files.read_public(source, MOST_BYTES, _START)
        reader = Reader("the request" if isinstance(source, bytes) else f"request {source}")
        found = reader.table(reader.document(raw), _FIELDS)
        reader.check()
        if found is None:
            raise TypeError("a table without faults has fields")
        found.pop("format")
        request = cls(**found)
        hint = "Ask the member to send the file again, and compare its fingerprint by telephone"
        if not verify(request.verifying, request.signature, request._text):
            reader.fault("the member's signature over exactly this content", "another", hint)
        if request._csr_key is None:
            reader.fault("a request for TLS under the same name, signed by its own key on P-256", "another", hint)
        reader.check()
        return request

    @cached_property
    def _csr_key(self) -> ec.EllipticCurvePublicKey | None:
        try:
            csr = x509.load_der_x509_csr(self.csr)
            public = csr.public_key()
            named = [(one.oid, one.value) for one in csr.subject] == [(NameOID.COMMON_NAME, self.name)]
            if named and isinstance(public, ec.EllipticCurvePublicKey) and on_p256(public) and csr.is_signature_valid:
                return public
        except (*UNREADABLE, InvalidSignature):
            pass
        return None

    @property
    def tls(self) -> ec.EllipticCurvePublicKey:
        """The public key for TLS."""
        if self._csr_key is None:
            raise TypeError("a request that was read or made has a key")
        return self._csr_key

    @property
    def dns(self) -> str:
        """The DNS name that its certificate will carry."""
        return dns(self.name)

    @property
    def fingerprint(self) -> str:
        """What is read out by telephone: it stands for every key in the request, and for name and role."""
        return fingerprint(self._text)

    @property
    def _text(self) -> bytes:
        return _PURPOSE + canonical_bytes(self._body())

    def _body(self) -> dict[str, Json]:
        return {
            "format": "consilia request 1", "name": self.name, "role": self.role, "verifying": self.verifying.hex(),
            "sealing": self.sealing.hex(), "csr": encode(self.csr), "renews": self.renews,
        }  # fmt: skip

    def to_bytes(self) -> bytes:
        """Return what `read` reads."""
        return canonical_bytes({**self._body(), "signature": self.signature.hex()}) + b"\n"


def fingerprint(content: bytes) -> str:
    """Return 96 bits of a SHA-256 as six groups of four hexadecimal digits."""
    digits = hashlib.sha256(content).hexdigest()[:_DIGITS]
    return " ".join(digits[at : at + 4] for at in range(0, _DIGITS, 4))


def consortium_fingerprint(public: bytes) -> str:
    """Return the fingerprint of a consortium's public key."""
    return fingerprint(b"consilia consortium 1\n" + public)
