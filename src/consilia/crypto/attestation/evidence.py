"""What a coordinator shows about itself, and what a site may believe after it was verified."""

import hashlib
import struct
from dataclasses import dataclass
from typing import Literal, Self, get_args

from cryptography.hazmat.primitives.asymmetric import ec

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation.refusal import Reader, refuse

Kind = Literal["sgx", "tdx", "nitro", "sev-snp", "tpm"]
KINDS: tuple[Kind, ...] = get_args(Kind)
X25519_BYTES = 32
P256_BYTES = 65
MAX_BODY = 1 << 16
MAX_COLLATERAL = 1 << 18
_MAGIC = b"CNEV\x01"
_TOKEN = 32  # bytes of a context and of a nonce: fixed, so that their concatenation reads one way only


@dataclass(frozen=True)
class Evidence:
    """A signed statement of hardware about a coordinator, as it came: nothing in it is believed yet.

    Attributes:
        kind: Which hardware signed.
        body: The quote, document or report. At most `MAX_BODY` bytes.
        key: The public key that updates are to be sealed to: X25519 (32 bytes) or an uncompressed point of P-256
            (65 bytes). Evidence carries its hash only, so the key travels beside it.
        collateral: What verification needs and the body lacks. sgx, tdx: the JSON of a quote's collateral (version 3).
            sev-snp: the DER certificates VCEK, ASK and ARK, one after the other. Empty for the others.
    """

    kind: Kind
    body: bytes
    key: bytes
    collateral: bytes = b""

    def to_bytes(self) -> bytes:
        """Encode for the wire."""
        parts = (self.kind.encode(), self.body, self.key, self.collateral)
        return _MAGIC + b"".join(struct.pack(">I", len(part)) + part for part in parts)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Decode what a coordinator sent.

        Raises:
            ProtocolError: If the bytes are cut, too long, or of another format, or the key is none.
        """
        reader = Reader(raw, "format")
        if reader.take(len(_MAGIC)) != _MAGIC:
            raise refuse("format", needs="evidence of version 1", got="bytes of another format")
        name = reader.sized(width=4, limit=16)
        body = reader.sized(width=4, limit=MAX_BODY)
        key = reader.sized(width=4, limit=P256_BYTES)
        collateral = reader.sized(width=4, limit=MAX_COLLATERAL)
        reader.finish()
        for kind in KINDS:
            if kind.encode() == name:
                evidence = cls(kind, body, key, collateral)
                evidence.require_sound()
                return evidence
        raise refuse("kind", needs=f"one of {', '.join(KINDS)}", got="another one")

    def require_sound(self) -> None:
        """Refuse sizes out of bounds and a key that is no key.

        Raises:
            ProtocolError: Naming what is wrong.
        """
        if self.kind not in KINDS:
            raise refuse("kind", needs=f"one of {', '.join(KINDS)}", got="another one")
        for name, part, limit in (("body", self.body, MAX_BODY), ("collateral", self.collateral, MAX_COLLATERAL)):
            if len(part) > limit:
                raise refuse("size", needs=f"a {name} of at most {limit} bytes", got=len(part))
        if len(self.key) == P256_BYTES:
            try:
                ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), self.key)
            except ValueError:
                raise refuse("key", needs="a point of the curve P-256", got="another point") from None
        elif len(self.key) != X25519_BYTES:
            raise refuse("key", needs="an X25519 key (32 bytes) or a P-256 point (65 bytes)",
                         got=f"{len(self.key)} bytes")  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """What the hardware signed, once the signature holds: authentic, and not yet compared with a site's policy.

    Attributes:
        measurement: The code, in the form that a policy of this kind writes it.
        bound: What the code put into the evidence: its hash of context, nonce and key.
        tcb: State of the platform's firmware, in words.
        debug: Whether the operator could look into the memory.
        issued: When it was made, in seconds since 1970; None where the hardware states no time.
        nonce: The nonce in clear, where the format has a field for it.
        key: The key in clear, where the format has a field for it.
    """

    measurement: str
    bound: bytes
    tcb: str
    debug: bool
    issued: int | None = None
    nonce: bytes | None = None
    key: bytes | None = None


@dataclass(frozen=True)
class Claims:
    """What a site may believe: code of this measurement holds the private half of `key`, until `expires`.

    Attributes:
        kind: Which hardware vouches.
        measurement: The code, as in the policy.
        key: The key to seal to.
        tcb: State of the platform's firmware, in words.
        debug: Always False: evidence of a debug mode is refused.
        issued: Seconds since 1970. Where the hardware states no time: when the site verified.
        expires: Seconds since 1970; after it the site asks for fresh evidence.
    """

    kind: Kind
    measurement: str
    key: bytes
    tcb: str
    debug: bool
    issued: int
    expires: int

    def require_fresh(self, now: int) -> None:
        """Refuse to go on with claims that are too old.

        Raises:
            ProtocolError: If `now` is after `expires` or before `issued`.
        """
        if not self.issued <= now <= self.expires:
            raise refuse("age", needs=f"claims of {self.issued} to {self.expires} (seconds since 1970)", got=now)


def binding(context: bytes, nonce: bytes, key: bytes) -> bytes:
    """Return what evidence must carry: SHA-256(context || nonce || key), 32 bytes.

    Formats with a field of 64 bytes (sgx, tdx, sev-snp) carry 32 zeros after it.

    Args:
        context: What the run is, 32 bytes: evidence for one run says nothing in another.
        nonce: What the SITE drew, 32 bytes: nobody could have made the evidence before.
        key: The coordinator's public key: the code that the evidence is about chose it.

    Raises:
        ProtocolError: If context or nonce is not 32 bytes long: with other lengths two different triples could agree.
    """
    for name, part in (("context", context), ("nonce", nonce)):
        if len(part) != _TOKEN:
            raise ProtocolError.of(
                f"The {name} of an attestation", needs=f"{_TOKEN} bytes", got=len(part), hint="Use a SHA-256 or a token"
            )
    return hashlib.sha256(context + nonce + key).digest()
