"""AMD SEV-SNP attestation reports, signed by the chip's versioned key (VCEK).

Source:
    AMD, SEV Secure Nested Paging Firmware ABI Specification (publication 56860, revisions 1.55 to 1.58): guest policy,
    TCB_VERSION, ATTESTATION_REPORT (the fields read here stand at the same places in versions 2 to 5) and the format of an
    ECDSA P-384 signature; AMD, Versioned Chip Endorsement Key Certificate and KDS Interface Specification (publication
    57230): extensions of the certificate.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from consilia.crypto.attestation.certificate import Certificate, check_chain, parse
from consilia.crypto.attestation.der import SEQUENCE, Der
from consilia.crypto.attestation.evidence import Evidence, Statement
from consilia.crypto.attestation.policy import TCB_PARTS, Policy
from consilia.crypto.attestation.refusal import refuse

_BYTES, _SIGNED, _HALF, _FIELD = 0x4A0, 0x2A0, 48, 72
_VERSIONS = range(2, 6)
# Milan and Genoa. Version 2 knew no others and did not say which; later families lay the TCB out otherwise.
_CPU_FAMILY = 0x19
_DEBUG, _MIGRATION = 1 << 19, 1 << 18  # guest policy
_ECDSA_P384 = 1
_OID = bytes.fromhex("2b060104019c78")  # 1.3.6.1.4.1.3704, AMD
_CHIP_OID = _OID + bytes.fromhex("0104")
# Part of the TCB: (its byte in the report's TCB version, its OID below AMD's).
_TCB = {"bootloader": (0, "010301"), "tee": (1, "010302"), "snp": (6, "010303"), "microcode": (7, "010308")}


def authenticate(evidence: Evidence, policy: Policy, now: int) -> Statement:
    """Return what the chip signed.

    Raises:
        ProtocolError: If the report or a certificate is malformed, a signature does not match, the chip or its firmware are
            not those of the certificate, or the firmware is older than the policy allows.
    """
    report = evidence.body
    if len(report) != _BYTES:
        raise refuse("format", needs=f"a report of {_BYTES} bytes", got=len(report))
    _require_form(report)
    vcek, *issuers = _certificates(evidence.collateral)
    _check_signature(report, vcek)
    check_chain([vcek, *issuers], policy.roots, now)
    tcb = _require_same_chip(report, vcek)
    for name, least, found in zip(TCB_PARTS, policy.minimum_tcb, tcb, strict=True):
        if found < least:
            raise refuse("tcb", needs=f"{name} {least} or newer", got=found)
    return Statement(
        measurement=report[0x90:0xC0].hex(),
        bound=report[0x50:0x90],
        tcb=", ".join(f"{name} {version}" for name, version in zip(TCB_PARTS, tcb, strict=True)),
        debug=bool(_little(report, 0x008, 8) & _DEBUG),
    )


def _little(report: bytes, at: int, size: int) -> int:
    return int.from_bytes(report[at : at + size], "little")


def _require_form(report: bytes) -> None:
    version, family = _little(report, 0x000, 4), report[0x188]
    if version not in _VERSIONS:
        raise refuse("format", needs=f"version {_VERSIONS[0]} to {_VERSIONS[-1]}", got=version)
    clauses = (
        ("processor", f"AMD's family {_CPU_FAMILY:#x}", family if version > _VERSIONS[0] else _CPU_FAMILY, _CPU_FAMILY),
        ("format", "ECDSA on P-384 with SHA-384 (algorithm 1)", _little(report, 0x034, 4), _ECDSA_P384),
        ("privilege", "the guest's most privileged level (VMPL 0)", _little(report, 0x030, 4), 0),
        ("migration", "a guest without migration agent", _little(report, 0x008, 8) & _MIGRATION, 0),
        # Bits 1 to 4 of the flags: the chip's key masked, or another key than the VCEK (0) signing.
        ("signer", "a report that the chip's own key (VCEK) signed", _little(report, 0x048, 4) & 0x1E, 0),
        ("format", "zeros behind the signature's numbers", _beyond_signature(report), 0),
    )
    for clause, needs, got, expected in clauses:
        if got != expected:
            raise refuse(clause, needs=needs, got=got)


def _beyond_signature(report: bytes) -> int:
    second = _SIGNED + _FIELD
    return sum(map(any, (report[_SIGNED + _HALF : second], report[second + _HALF :])))


def _certificates(collateral: bytes) -> list[Certificate]:
    rest = Der.of(collateral)
    found: list[Certificate] = []
    while rest.more() and len(found) < 4:
        found.append(parse(rest.whole(SEQUENCE)))
    if len(found) != 3:
        raise refuse("chain", needs="three certificates: VCEK, ASK, ARK", got=len(found))
    return found


def _check_signature(report: bytes, vcek: Certificate) -> None:
    r, s = _little(report, _SIGNED, _HALF), _little(report, _SIGNED + _FIELD, _HALF)
    if not isinstance(vcek.key, ec.EllipticCurvePublicKey) or not isinstance(vcek.key.curve, ec.SECP384R1):
        raise refuse("signature", needs="a chip's key on P-384", got="another key")
    try:
        vcek.key.verify(encode_dss_signature(r, s), report[:_SIGNED], ec.ECDSA(hashes.SHA384()))
    except (InvalidSignature, ValueError):
        raise refuse("signature", needs="the chip's signature of the report", got="one that does not match") from None


def _require_same_chip(report: bytes, vcek: Certificate) -> tuple[int, ...]:
    """Compare chip and firmware with the certificate; return the firmware's versions in the order of `TCB_PARTS`."""
    if vcek.extensions.get(_CHIP_OID) != report[0x1A0:0x1E0]:
        raise refuse("chip", needs="a report of the chip that the certificate names", got="another chip")
    versions = []
    for part in TCB_PARTS:
        place, oid = _TCB[part]
        reported = report[0x180 + place]
        value = vcek.extensions.get(_OID + bytes.fromhex(oid))
        certified = None if value is None else Der.of(value).integer()
        if certified != reported:
            raise refuse("tcb", needs=f"the certificate's {part} version ({certified})", got=reported)
        versions.append(reported)
    return tuple(versions)
