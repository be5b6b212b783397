"""X.509 certificates for TLS: the consortium's authority and what it issues to members.

Keys are ECDSA on P-256: the TLS library inside gRPC (BoringSSL) takes no Ed25519 certificates.
A certificate says nothing about standing: whose it is and that it still counts is what the signed roster says (`book`).

Source:
    RFC 5280, sections 4.2.1.3 (key usage), 4.2.1.6 (alternative names), 4.2.1.9 (basic constraints), 4.2.1.12 (purposes).
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from consilia.core.errors import StoreError
from consilia.transport.credentials.names import Role, dns, uri

MEMBER_DAYS = 398
AUTHORITY_DAYS = 3653
SKEW = timedelta(minutes=5)  # how far the clock of the other end may lag behind the signer's
_PURPOSES = {
    "site": ExtendedKeyUsageOID.CLIENT_AUTH,
    "operator": ExtendedKeyUsageOID.CLIENT_AUTH,
    "coordinator": ExtendedKeyUsageOID.SERVER_AUTH,
}
UNREADABLE = (
    ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType,
)  # fmt: skip


@dataclass(frozen=True)
class Authority:
    """Who issues a consortium's certificates.

    Attributes:
        key: Its private key; its text never shows it.
        certificate: Its own certificate.
    """

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate

    @classmethod
    def create(cls, consortium: str, now: datetime) -> "Authority":
        """Return a fresh authority for ten years; it may issue certificates of members and none of other authorities."""
        key = new_key()
        subject = _called(consortium)
        builder = _builder(subject, subject, key.public_key(), now, now + timedelta(days=AUTHORITY_DAYS))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    def issue(
        self, name: str, role: Role, public: ec.EllipticCurvePublicKey, now: datetime, days: int = MEMBER_DAYS
    ) -> x509.Certificate:
        """Return a member's certificate: for TLS in the role's direction only, until the authority's own end at the latest."""
        own = self.certificate
        until = min(now + timedelta(days=days), own.not_valid_after_utc)
        builder = _builder(_called(name), own.subject, public, now, until)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([_PURPOSES[role]]), critical=True)
        builder = builder.add_extension(_names(name, role), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
        )
        return builder.sign(self.key, hashes.SHA256())


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _names(name: str, role: Role) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.DNSName(dns(name)), x509.UniformResourceIdentifier(uri(role, name))])


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - SKEW).not_valid_after(until)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a fresh private key, from the operating system's generator."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as its file holds it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_key(pem: bytes, who: str) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a file.

    Raises:
        StoreError: If it holds none on P-256.
    """
    try:
        key = serialization.load_pem_private_key(pem, None)
    except UNREADABLE:
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not on_p256(key.public_key()):
        raise StoreError.of(who, needs="a private key on P-256 in PEM, without a password", got="something else",
                            hint="It was damaged or replaced: restore it from a copy")  # fmt: skip
    return key


def on_p256(public: object) -> bool:
    """Return True for a public key on the curve that all certificates here are on."""
    return isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1)


def same_key(one: ec.EllipticCurvePublicKey, other: object) -> bool:
    """Return True if both are the same public key."""
    return isinstance(other, ec.EllipticCurvePublicKey) and one == other


def der(certificate: x509.Certificate) -> bytes:
    """Return a certificate's bytes."""
    return certificate.public_bytes(serialization.Encoding.DER)


def pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as TLS libraries take it."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def read_certificate(raw: bytes) -> x509.Certificate | None:
    """Return a certificate in DER or PEM, or None for bytes that are none."""
    try:
        is_pem = raw.lstrip().startswith(b"-----")
        found = x509.load_pem_x509_certificate(raw) if is_pem else x509.load_der_x509_certificate(raw)
    except UNREADABLE:
        return None
    return found if found.serial_number > 0 else None


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return True if the authority signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def is_authority(certificate: x509.Certificate) -> bool:
    """Return True for a certificate such as `Authority.create` makes."""
    try:
        limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except (*UNREADABLE, x509.ExtensionNotFound):
        return False
    return (
        limits.ca and limits.path_length == 0 and usage.key_cert_sign and on_p256(certificate.public_key())
        and issued_by(certificate, certificate)
    )  # fmt: skip


def is_for(certificate: x509.Certificate, name: str, role: Role) -> bool:
    """Return True if a certificate is a member's of this name and role, and says no more than `Authority.issue` writes."""
    try:
        found = certificate.extensions
        limits = found.get_extension_for_class(x509.BasicConstraints).value
        usage = found.get_extension_for_class(x509.KeyUsage).value
        purposes = found.get_extension_for_class(x509.ExtendedKeyUsage).value
        names = found.get_extension_for_class(x509.SubjectAlternativeName).value
        subject, public = certificate.subject, certificate.public_key()
    except (*UNREADABLE, x509.ExtensionNotFound):
        return False
    return (
        not limits.ca and usage == _usage(signs_certificates=False) and list(purposes) == [_PURPOSES[role]]
        and names == _names(name, role) and subject == _called(name) and on_p256(public)
    )  # fmt: skip


def claims(certificate: x509.Certificate) -> str:
    """Return the URI that a certificate names its owner by, or "" without exactly one."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (*UNREADABLE, x509.ExtensionNotFound):
        return ""
    found = names.get_values_for_type(x509.UniformResourceIdentifier)
    return found[0] if len(found) == 1 else ""
