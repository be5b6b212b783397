"""Sealing an update to the key that evidence vouches for: X25519, or P-256 where the key lives in a TPM.

The form for P-256 is that of `crypto.sealing` with another curve: fresh point (65 bytes), ciphertext, tag (16 bytes).
"""

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto import sealing
from consilia.crypto.attestation.evidence import P256_BYTES, X25519_BYTES, Claims
from consilia.crypto.keys import derive

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256. Source: SEC 2, section 2.4.2
_WIDE = 48  # bytes reduced modulo the order: 128 bits more than it has, so that the bias is below 2**-128
_CURVE = ec.SECP256R1()


def seal_to(claims: Claims, plaintext: bytes, *, info: bytes, rng: SecretRng, now: int) -> bytes:
    """Encrypt for the code that was verified.

    Args:
        claims: What `verify` returned.
        plaintext: The update.
        info: What the message belongs to (run, site, round): `open` must name the same.
        rng: Secret randomness for the fresh key.
        now: Seconds since 1970.

    Raises:
        ProtocolError: If the claims are too old, or their key is none.

    Guarantees:
        Only the holder of the private half of `claims.key` can read it. It does not say who sealed it.
    """
    claims.require_fresh(now)
    if len(claims.key) == X25519_BYTES:
        return sealing.seal(claims.key, plaintext, info=info, rng=rng)
    fresh = draw_p256(rng)
    point = fresh.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    try:
        agreed = fresh.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, claims.key))
    except ValueError:
        raise ProtocolError.of("The key to seal to", needs="a point of the curve P-256", got="another one",
                               hint="Verify the evidence first") from None  # fmt: skip
    return point + sealing.lock(_key(agreed, point, claims.key, info), plaintext)


def draw_p256(rng: SecretRng) -> ec.EllipticCurvePrivateKey:
    """Return a fresh private key on P-256."""
    return ec.derive_private_key(1 + int.from_bytes(rng.token(_WIDE), "big") % (_ORDER - 1), _CURVE)


def open_p256(agree: Callable[[bytes], bytes], public: bytes, sealed: bytes, *, info: bytes, who: str) -> bytes:
    """Return what was sealed to a P-256 key whose private half only `agree` can use.

    Args:
        agree: Takes a point (65 bytes), returns the x coordinate of the agreed point (32 bytes).
        public: The reader's key, 65 bytes.
        sealed: What `seal_to` returned.
        info: What the message belongs to.
        who: The sealed text's name in errors.

    Raises:
        ProtocolError: If it was sealed to another key, for another `info`, or changed.
    """
    point = bytes(sealed[:P256_BYTES])
    try:
        if len(point) != P256_BYTES:  # a compressed point is shorter
            raise ValueError
        ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, point)  # no small step for a hostile sender
    except ValueError:
        raise ProtocolError.of(who, needs="bytes sealed to a P-256 key", got=f"{len(sealed)} bytes that are not",
                               hint="Site and coordinator must use one kind of evidence") from None  # fmt: skip
    return sealing.unlock(_key(agree(point), point, public, info), sealed[P256_BYTES:], who=who)


def _key(agreed: bytes, fresh: bytes, reader: bytes, info: bytes) -> bytes:
    return derive(agreed, info=b"consilia seal P-256" + fresh + reader + info)
