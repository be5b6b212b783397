"""Chains of X.509 certificates up to a root that the policy pins.

The certificates of AMD's chips have the serial number 0, which `cryptography` announces to refuse: hence a small parser of
our own, for exactly the algorithms that the vendors use. Keys and signatures are left to `cryptography`.

Source: RFC 5280, sections 4.1, 4.2 and 6.1; RFC 4055 for RSASSA-PSS; RFC 5758 for ECDSA.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key

from consilia.crypto.attestation.der import BOOLEAN, INTEGER, OCTET_STRING, OID, SEQUENCE, Der
from consilia.crypto.attestation.refusal import refuse

_BASIC_CONSTRAINTS, _KEY_USAGE = bytes.fromhex("551d13"), bytes.fromhex("551d0f")
_UNDERSTOOD = {_BASIC_CONSTRAINTS, _KEY_USAGE}
_CERT_SIGN = 0x04  # bit 5 of KeyUsage, in its first byte
_MAX_CERTIFICATE, _MAX_CHAIN = 8192, 8
_VERSION_TAG, _EXTENSIONS_TAG = 0xA0, 0xA3
_RSA_BITS = (3072, 8192)  # below: too weak; above: a peer could make the site compute for long
# Whole AlgorithmIdentifiers; nothing else is accepted. PSS: SHA-384, MGF1 with SHA-384, salt of 48 bytes; the trailer
# field, which has one value only, is written out by AMD although DER leaves defaults out.
_ECDSA = {
    bytes.fromhex("300a06082a8648ce3d040302"): hashes.SHA256(),
    bytes.fromhex("300a06082a8648ce3d040303"): hashes.SHA384(),
}
_PSS_PARAMETERS = (
    "a00f300d06096086480165030402020500a11c301a06092a864886f70d010108300d06096086480165030402020500a203020130"
)
_PSS = {
    bytes.fromhex("304106092a864886f70d01010a3034" + _PSS_PARAMETERS),
    bytes.fromhex("304606092a864886f70d01010a3039" + _PSS_PARAMETERS + "a303020101"),
}
_SALT = 48

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True)
class Certificate:
    """A parsed certificate. Names are compared as bytes; times are seconds since 1970.

    `authority` is None for an end entity, else how many authorities may follow below it (a large number: any).
    """

    raw: bytes
    signed: bytes
    algorithm: bytes
    signature: bytes
    issuer: bytes
    subject: bytes
    not_before: int
    not_after: int
    key: PublicKey
    authority: int | None
    extensions: dict[bytes, bytes]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the DER, in hex."""
        return hashlib.sha256(self.raw).hexdigest()


def parse(raw: bytes) -> Certificate:
    """Parse one DER certificate of version 3.

    Raises:
        ProtocolError: If it is longer than 8 KiB, malformed, or uses an algorithm outside of those known here.
    """
    if len(raw) > _MAX_CERTIFICATE:
        raise refuse("certificate", needs=f"at most {_MAX_CERTIFICATE} bytes", got=len(raw))
    outer = Der.of(raw)
    whole = outer.enter(SEQUENCE)
    outer.finish()
    signed = Der(whole.data, whole.at, whole.end).whole(SEQUENCE)
    body = whole.enter(SEQUENCE)
    algorithm, signature = whole.whole(SEQUENCE), whole.bits()
    whole.finish()
    if body.value(_VERSION_TAG) != b"\x02\x01\x02":
        raise refuse("certificate", needs="X.509 version 3", got="another version")
    body.value(INTEGER)  # the serial number: AMD's is 0, and nothing here depends on it
    inner_algorithm = body.whole(SEQUENCE)
    if inner_algorithm != algorithm:
        raise refuse("certificate", needs="one signature algorithm", got="two")
    issuer = body.whole(SEQUENCE)
    validity = body.enter(SEQUENCE)
    not_before, not_after = validity.time(), validity.time()
    validity.finish()
    subject = body.whole(SEQUENCE)
    key = _key(body.whole(SEQUENCE))
    extensions, critical = _extensions(body)
    body.finish()
    unknown = critical - _UNDERSTOOD
    if unknown:
        raise refuse("certificate", needs="no critical extension that is not understood", got=min(unknown).hex())
    return Certificate(raw, signed, algorithm, signature, issuer, subject, not_before, not_after, key,
                       _authority(extensions), extensions)  # fmt: skip


def check_chain(chain: Sequence[Certificate], roots: Sequence[str], now: int) -> None:
    """Check a chain, leaf first, root last.

    Args:
        chain: At least two certificates.
        roots: SHA-256 fingerprints (hex) of the roots that are trusted.
        now: Seconds since 1970.

    Raises:
        ProtocolError: Naming the first clause that does not hold. Revocation lists are not consulted.
    """
    if not 2 <= len(chain) <= _MAX_CHAIN:
        raise refuse("chain", needs=f"2 to {_MAX_CHAIN} certificates", got=len(chain))
    if chain[-1].fingerprint not in roots:
        raise refuse("root", needs="a root certificate that the policy pins", got=chain[-1].fingerprint)
    for certificate in chain:
        if not certificate.not_before <= now <= certificate.not_after:
            raise refuse("validity", needs="certificates that are valid now", got=(
                f"one valid from {certificate.not_before} to {certificate.not_after}, at {now} (seconds since 1970)"
            ))  # fmt: skip
    for below, (certificate, issuer) in enumerate(zip(chain, [*chain[1:], chain[-1]], strict=True)):
        if certificate.issuer != issuer.subject:
            raise refuse("chain", needs="each certificate's issuer to be the next one's subject", got="another name")
        if issuer.authority is None or issuer.authority < min(below, len(chain) - 2):
            raise refuse("chain", needs="issuers that may sign certificates at this depth", got="one that may not")
        _check_signature(certificate, issuer.key)


def _check_signature(certificate: Certificate, key: PublicKey) -> None:
    try:
        if isinstance(key, rsa.RSAPublicKey) and certificate.algorithm in _PSS:
            scheme = padding.PSS(padding.MGF1(hashes.SHA384()), _SALT)
            key.verify(certificate.signature, certificate.signed, scheme, hashes.SHA384())
            return
        if isinstance(key, ec.EllipticCurvePublicKey) and certificate.algorithm in _ECDSA:
            key.verify(certificate.signature, certificate.signed, ec.ECDSA(_ECDSA[certificate.algorithm]))
            return
    except (InvalidSignature, ValueError):
        raise refuse("chain", needs="signatures of the issuers", got="one that does not match") from None
    raise refuse("chain", needs="ECDSA with SHA-256 or SHA-384, or RSA-PSS with SHA-384", got="another signature")


def _key(info: bytes) -> PublicKey:
    try:
        key = load_der_public_key(info)
    except (ValueError, UnsupportedAlgorithm):
        raise refuse("certificate", needs="a public key", got="bytes that are none") from None
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, (ec.SECP256R1, ec.SECP384R1)):
        return key
    if isinstance(key, rsa.RSAPublicKey) and _RSA_BITS[0] <= key.key_size <= _RSA_BITS[1]:
        return key
    raise refuse("certificate", needs="a key on P-256 or P-384, or RSA of 3072 to 8192 bits", got="another key")


def _extensions(body: Der) -> tuple[dict[bytes, bytes], set[bytes]]:
    """Return the values by OID, and which are critical."""
    found: dict[bytes, bytes] = {}
    critical: set[bytes] = set()
    if not body.more():
        return found, critical
    wrapper = body.enter(_EXTENSIONS_TAG)
    entries = wrapper.enter(SEQUENCE)
    wrapper.finish()
    while entries.more():
        entry = entries.enter(SEQUENCE)
        name = entry.value(OID)
        if name in found:
            raise refuse("certificate", needs="each extension once", got=f"{name.hex()} twice")
        if entry.next_is(BOOLEAN) and entry.value(BOOLEAN) != b"\0":
            critical.add(name)
        found[name] = entry.value(OCTET_STRING)
        entry.finish()
    return found, critical


def _authority(extensions: dict[bytes, bytes]) -> int | None:
    """Return how many authorities may follow below, or None for an end entity."""
    if _BASIC_CONSTRAINTS not in extensions:
        return None
    outer = Der.of(extensions[_BASIC_CONSTRAINTS])
    inner = outer.enter(SEQUENCE)
    outer.finish()
    authority = inner.next_is(BOOLEAN) and inner.value(BOOLEAN) != b"\0"
    depth = inner.integer() if inner.more() else _MAX_CHAIN
    inner.finish()
    usage = extensions.get(_KEY_USAGE, b"")
    # KeyUsage: BIT STRING, tag, length, unused bits, first byte.
    may_sign = len(usage) >= 4 and bool(usage[3] & _CERT_SIGN)
    return depth if authority and may_sign else None
