"""Tags that add up as the vectors do: the site that opens a sum sees whose vectors are in it, before it tells anybody.

The sites share a key that the coordinator does not have. Site k's tag for a context is

    tag_k = sum_j r_j m_kj + pad_k  mod n

over its plaintexts m_kj, with weights r_j of 128 bits and pad_k modulo n drawn from the key and the context, pad_k from the
site's number as well. The sum of the tags of a set of sites is that of the sum of their plaintexts plus their pads.

Guarantees:
    A coordinator without the key that has anything else opened than the sum of what exactly the listed sites encrypted for
    this context passes with a chance of at most 2^-128 an attempt: each pad is used once, so tags tell nothing of the
    weights, and a fixed difference of the plaintexts, not 0 modulo one of the primes, fits at most one value of a weight.
    A site must encrypt one vector a context: under two, the difference of the tags shows a sum over the weights.
    **Not covered**: a coordinator together with a site, which has the key and needs no sum.

Source:
    Agrawal and Boneh (2009), Homomorphic MACs: MAC-based integrity for network coding.
"""

from collections.abc import Iterable, Sequence

from consilia.core.randomness import SecretRng
from consilia.crypto.paillier_integers import number

_WEIGHT = 16  # bytes; a weight is below either prime


def tag(n: int, group: bytes, context: bytes, plaintexts: Sequence[int], sites: Iterable[int]) -> int:
    """Return the tag that the sum of these sites' vectors must have; for one site its own tag.

    Args:
        n: The modulus.
        group: The sites' common key, 32 bytes.
        context: What the vectors are for.
        plaintexts: Of the sum, or of the site's own vector.
        sites: Numbers of the sites whose vectors are in it.
    """
    rng = SecretRng(group).derive("paillier tag", context.hex())
    weights = rng.derive("weights").token(_WEIGHT * len(plaintexts))
    found = number(0)
    for place, plaintext in enumerate(plaintexts):
        found += int.from_bytes(weights[_WEIGHT * place : _WEIGHT * (place + 1)], "big") * number(plaintext)
    size = -(-n.bit_length() // 8) + 16  # 128 bits more than n: modulo n it is uniform
    for site in sites:
        found += int.from_bytes(rng.derive("pad", site).token(size), "big")
    return found % n
