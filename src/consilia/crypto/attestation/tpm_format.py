"""Structures of TPM 2.0 that a quote consists of, parsed strictly.

Source:
    Trusted Computing Group, TPM 2.0 Library Specification, Part 2: Structures, revision 1.59, sections 8.3 (TPMA_OBJECT),
    10.6 (PCR selections), 10.12 (TPMS_ATTEST and TPMS_CLOCK_INFO), 11.2.5 (TPMS_ECC_POINT), 11.3 (TPMT_SIGNATURE),
    12.2 (TPMT_PUBLIC); Part 1, section 16 (names) and Part 3, section 23.7 (TPM2_PolicyPCR).
"""

import hashlib
from dataclasses import dataclass

from consilia.crypto.attestation.refusal import Reader, refuse

ALG_ECC, ALG_SHA256, ALG_NULL, ALG_ECDSA, ALG_ECDH = 0x0023, 0x000B, 0x0010, 0x0018, 0x0019
CURVE_P256 = 0x0003
CC_POLICY_PCR = 0x0000017F
GENERATED, ST_CERTIFY, ST_QUOTE = 0xFF544347, 0x8017, 0x8018
FIXED_TPM, FIXED_PARENT, SENSITIVE_ORIGIN = 1 << 1, 1 << 4, 1 << 5
USER_WITH_AUTH, NO_DA, RESTRICTED, DECRYPT, SIGN = 1 << 6, 1 << 10, 1 << 16, 1 << 17, 1 << 18
COORDINATE = 32
_PCR_BYTES = 3  # of a selection: 24 registers


@dataclass(frozen=True)
class PublicArea:
    """The public area of an ECC key on P-256 whose name is a SHA-256."""

    raw: bytes
    attributes: int
    policy: bytes
    scheme: int
    point: bytes

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the area, in hex: what a policy pins."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def name(self) -> bytes:
        """The name by which a TPM speaks of the key. Source: Part 1, section 16."""
        return ALG_SHA256.to_bytes(2, "big") + hashlib.sha256(self.raw).digest()


def public_area(raw: bytes, clause: str) -> PublicArea:
    """Parse a TPMT_PUBLIC of an unrestricted or signing P-256 key.

    Raises:
        ProtocolError: If it is malformed or of another kind.
    """
    reader = Reader(raw, clause)
    kind, name_hash, attributes = reader.number(2), reader.number(2), reader.number(4)
    policy = reader.sized(width=2, limit=32)
    symmetric, scheme = reader.number(2), reader.number(2)
    scheme_hash = ALG_SHA256 if scheme == ALG_NULL else reader.number(2)
    curve, derivation = reader.number(2), reader.number(2)
    expected = (ALG_ECC, ALG_SHA256, ALG_NULL, ALG_SHA256, CURVE_P256, ALG_NULL)
    if (kind, name_hash, symmetric, scheme_hash, curve, derivation) != expected:
        raise refuse(clause, needs="an ECC key on P-256 with SHA-256", got="another kind of key")
    x, y = (reader.sized(width=2, limit=COORDINATE).rjust(COORDINATE, b"\0") for _ in range(2))
    reader.finish()
    return PublicArea(raw, attributes, policy, scheme, b"\x04" + x + y)


def signature(raw: bytes, clause: str) -> tuple[int, int]:
    """Parse a TPMT_SIGNATURE of ECDSA with SHA-256; return (r, s)."""
    reader = Reader(raw, clause)
    if (reader.number(2), reader.number(2)) != (ALG_ECDSA, ALG_SHA256):
        raise refuse(clause, needs="ECDSA with SHA-256", got="another signature")
    r, s = (int.from_bytes(reader.sized(width=2, limit=COORDINATE), "big") for _ in range(2))
    reader.finish()
    return r, s


def selection(registers: tuple[int, ...]) -> bytes:
    """Encode the TPML_PCR_SELECTION of registers in the SHA-256 bank."""
    bits = sum(1 << register for register in registers)
    return (
        (1).to_bytes(4, "big")
        + ALG_SHA256.to_bytes(2, "big")
        + bytes([_PCR_BYTES])
        + bits.to_bytes(_PCR_BYTES, "little")
    )


def policy_pcr(registers: tuple[int, ...], digest: bytes) -> bytes:
    """Return the authPolicy under which a key works only while the registers have this digest.

    Source: Part 3, section 23.7: SHA-256(zeros || TPM_CC_PolicyPCR || selection || digest).
    """
    command = CC_POLICY_PCR.to_bytes(4, "big")
    return hashlib.sha256(bytes(32) + command + selection(registers) + digest).digest()


@dataclass(frozen=True)
class Attest:
    """A TPMS_ATTEST: what was signed about, by whom, and in which life of the TPM."""

    signer: bytes
    extra: bytes
    resets: int
    restarts: int
    safe: bool
    firmware: int
    rest: Reader


def attest(raw: bytes, kind: int, clause: str) -> Attest:
    """Parse a TPMS_ATTEST of this kind; `rest` stands at the part that depends on the kind.

    Raises:
        ProtocolError: If it is cut, not made by a TPM, or of another kind.
    """
    reader = Reader(raw, clause)
    if (reader.number(4), reader.number(2)) != (GENERATED, kind):
        raise refuse(clause, needs=f"a statement made by a TPM, of type {kind:#x}", got="another one")
    signer, extra = reader.sized(width=2, limit=34), reader.sized(width=2, limit=64)
    reader.number(8)  # milliseconds since the last clear: no time of the day
    resets, restarts, safe, firmware = reader.number(4), reader.number(4), reader.number(1), reader.number(8)
    if safe > 1:
        raise refuse(clause, needs="yes or no", got=safe)
    return Attest(signer, extra, resets, restarts, bool(safe), firmware, reader)
