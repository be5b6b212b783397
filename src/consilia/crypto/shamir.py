"""Shamir's secret sharing of 32-byte secrets over a prime field: any t shares give the secret, t - 1 say nothing.

The field is the integers modulo 2^256 + 297, the smallest prime above all secrets. Weights of the interpolation depend on who
answered only, so they are computed once for all secrets that the same holders share. No branch depends on a share, but large
integers take time that depends on their values: nothing here defends against someone who can time the processor closely.

Source:
    A. Shamir (1979), How to share a secret. Communications of the ACM 22(11).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng

PRIME = (1 << 256) + 297
SECRET_SIZE = 32
SHARE_SIZE = 33
_DRAWN = 48  # bytes behind a coefficient: reduced modulo the prime they are within 2^-127 of uniform


def split(secret: bytes, threshold: int, holders: Iterable[int], rng: SecretRng) -> dict[int, bytes]:
    """Share a secret of 32 bytes among holders, of whom any `threshold` can rebuild it.

    Args:
        secret: What to share.
        threshold: t, at least 1.
        holders: Distinct positive numbers below 2^32, one a holder.
        rng: Secret randomness for the polynomial.

    Returns:
        Each holder's share, 33 bytes.

    Raises:
        ValueError: If the secret has another length, or a holder is not positive: its share would be the secret.

    Guarantees:
        Any t - 1 shares are, within 2^-119, distributed as if the secret were another.
    """
    if len(secret) != SECRET_SIZE or threshold < 1:
        raise ValueError(f"A secret has {SECRET_SIZE} bytes and a threshold of at least 1.")
    drawn = rng.token(_DRAWN * (threshold - 1))
    polynomial = [int.from_bytes(drawn[i : i + _DRAWN], "little") % PRIME for i in range(0, len(drawn), _DRAWN)]
    polynomial.append(int.from_bytes(secret, "little"))
    shares = {}
    for x in holders:
        if not 0 < x < 1 << 32:
            raise ValueError("A holder is a positive number below 2^32.")
        value = 0
        for coefficient in polynomial:  # Horner, from the highest power down to the secret
            value = (value * x + coefficient) % PRIME
        shares[x] = value.to_bytes(SHARE_SIZE, "little")
    return shares


def weights(holders: Sequence[int]) -> dict[int, int]:
    """Return the Lagrange weights at zero for these holders: the secret is the sum of weight times share.

    Args:
        holders: Distinct positive numbers, t of them.
    """
    everyone = math.prod(holders)
    # Differences are small, so their plain product is cheap; inverses are dear, so one is taken for all of them.
    below = [x * math.prod([other - x for other in holders if other != x]) % PRIME for x in holders]
    before = [1, *accumulate(below, lambda one, other: one * other % PRIME)]
    inverse, result = pow(before.pop(), -1, PRIME), {}
    for x, own, others in zip(reversed(holders), reversed(below), reversed(before), strict=True):
        result[x] = everyone * inverse * others % PRIME
        inverse = inverse * own % PRIME
    return result


def combine(shares: Mapping[int, bytes], lagrange: Mapping[int, int], *, who: str) -> bytes:
    """Rebuild a secret of 32 bytes from the shares of the holders whose weights these are.

    Args:
        shares: By holder; those without a weight are not looked at.
        lagrange: What `weights` returned for t of the holders.
        who: Whose secret it is, for the error.

    Raises:
        ProtocolError: If the shares are of no secret of 32 bytes; wrong ones are mostly not noticed here.
    """
    total = sum(weight * int.from_bytes(shares[x], "little") for x, weight in lagrange.items()) % PRIME
    if total >> (8 * SECRET_SIZE):
        raise ProtocolError.of(who, needs="shares of a secret of 32 bytes", got="shares of something larger",
                               hint="At least one of them is wrong")  # fmt: skip
    return total.to_bytes(SECRET_SIZE, "little")
