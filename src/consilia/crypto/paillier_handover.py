"""How the one key gets from the site that made it to the others, through a coordinator that carries bytes.

Guarantees:
    Only the reader learns the key, and takes none but the maker's for this context. Without the maker's signature a
    coordinator could hand out a key of its own and read everything that is encrypted under it. Since the reader's key is
    drawn for one time, what was handed over once cannot be handed over again to a site that has since started anew.
    **Not covered**: a maker that gives the key away, or a different one to each site (their sums then do not open).
"""

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.paillier_key import PaillierKey
from consilia.crypto.sealing import open_sealed, seal
from consilia.crypto.signing import SIGNATURE_SIZE, SigningKey, verify

_PURPOSE = b"consilia paillier key 1\n"


def hand_over(key: PaillierKey, *, context: bytes, maker: SigningKey, reader: bytes, rng: SecretRng) -> bytes:
    """Return the key, sealed to another site and signed.

    Args:
        key: The key.
        context: What it is for, 32 bytes; hashes the run, the plan and the roster.
        maker: The signing key of the site that made it.
        reader: A public X25519 key of the other site, signed by it and drawn for this one time.
        rng: The maker's secret randomness.
    """
    sealed = seal(reader, key.to_bytes(), info=_PURPOSE + context, rng=rng)
    return maker.sign(_signed(context, reader, sealed)) + sealed


def take_over(payload: Bytes, *, context: bytes, maker: bytes, reader: ExchangeKey, bits: int) -> PaillierKey:
    """Return the key that `hand_over` sealed to this site.

    Args:
        payload: As it came.
        context: What the key must be for.
        maker: The maker's public Ed25519 key, from the roster.
        reader: The key that this site drew; it must be forgotten after that.
        bits: Length of the modulus, from the plan.

    Raises:
        ProtocolError: If it is not signed by the maker for this site and context, does not open, or is no key of this length.
    """
    who, sealed = "the Paillier key from another site", bytes(payload[SIGNATURE_SIZE:])
    if not verify(maker, bytes(payload[:SIGNATURE_SIZE]), _signed(context, reader.public, sealed)):
        raise ProtocolError.of(
            who, needs="the signature of the site that makes it, for this site and run", got="another or none",
            hint="The coordinator is broken or hostile: leave the run and tell the consortium",
        )  # fmt: skip
    key = PaillierKey.from_bytes(open_sealed(reader, sealed, info=_PURPOSE + context, who=who), who=who)
    if key.public.bits != bits:
        raise ProtocolError.of(who, needs=f"the plan's {bits} bits", got=f"{key.public.bits}",
                               hint="Both sites must have checked the same plan")  # fmt: skip
    return key


def _signed(context: bytes, reader: bytes, sealed: bytes) -> bytes:
    parts = (context, reader, sealed)
    return _PURPOSE + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
