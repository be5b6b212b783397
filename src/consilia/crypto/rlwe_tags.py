"""Tags that add up as the vectors do: so that sites see which vectors are in a sum that they are asked to open.

The sites share a key that the coordinator does not have. Site k's tag for a context is, modulo each prime and four times,

    tag_k = h(c_1) + pad_k,   h(c) = sum_(b, i, j) rho_b alpha_i beta_j c[b, i, j],

with rho, alpha, beta and pad_k drawn from the key and the context, pad_k from the site's number as well. h is linear, so the
sum of the tags of a set of sites is h of the sum of their c_1 plus the sum of their pads.

Guarantees:
    A coordinator without the key that hands out another c_1 than the sum of what exactly the listed sites encrypted for this
    context passes with a chance of at most (3 / p)^4 < 2^-113 an attempt: tags are hidden by pads that are used once, and h of
    a fixed difference is a polynomial of degree 3 in what the coordinator does not know. A site must encrypt one vector a
    context: under two, the difference of the tags shows h of the difference.
    **Not covered**: a coordinator together with a site, which knows the key.

Source:
    Agrawal and Boneh (2009), Homomorphic MACs: MAC-based integrity for network coding.
    Schwartz (1980), Fast probabilistic algorithms for verification of polynomial identities.
"""

from collections.abc import Iterable

import numpy as np

from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto.rlwe_field import Factor, Polynomials, Residues
from consilia.crypto.rlwe_ntt import GROUP, SIDE, halves, transform
from consilia.crypto.rlwe_parameters import PRIMES
from consilia.crypto.rlwe_sampling import uniform
from consilia.crypto.rlwe_wire import malformed

TIMES = 4
SIZE = 4 * len(PRIMES) * TIMES  # bytes


def tag(group: bytes, context: bytes, masks: Residues, sites: Iterable[int]) -> Residues:
    """Return the tag that c_1 of a sum of these sites' vectors must have, shape (3, 4); for one site its own tag.

    Args:
        group: The sites' common key, 32 bytes.
        context: What the vectors are for.
        masks: c_1, residues of shape (3, blocks, 64, 64).
        sites: Numbers of the sites whose vectors are in it.
    """
    rng = SecretRng(group).derive("rlwe tag", context.hex())
    chosen = tuple(sites)
    found = np.empty((len(PRIMES), TIMES), np.uint32)
    for place, p in enumerate(PRIMES):
        pads = np.zeros(TIMES)
        for site in chosen:
            pads += uniform(p, TIMES, rng.derive("pad", p, site))
        prime = transform(p).prime
        found[place] = prime.residues(prime.reduce(_hash(p, masks[place], rng.derive("hash", p)) + pads))
    return found


def _hash(p: int, masks: Residues, rng: SecretRng) -> Polynomials:
    """Return h modulo p of c_1 modulo p, shape (4,)."""
    prime, blocks = transform(p).prime, len(masks)
    beta, alpha, rho = (
        prime.centred(uniform(p, TIMES * length, rng)).reshape(length, TIMES) for length in (SIDE, SIDE, blocks)
    )
    columns = halves(beta, 1)
    total = np.zeros(TIMES)
    for start in range(0, blocks, GROUP):
        part = slice(start, start + GROUP)
        products = prime.centred(masks[part]) @ columns  # each step adds 64 or fewer residues: far below 2^52
        rows = prime.times(prime.join(products[..., :TIMES], products[..., TIMES:]), Factor(alpha)).sum(axis=1)
        total += prime.times(prime.reduce(rows), Factor(rho[part])).sum(axis=0)
    return total


def write(tags: Residues) -> bytes:
    """Return a tag as `SIZE` bytes."""
    return tags.astype("<u4").tobytes()


def split(payload: Bytes) -> tuple[memoryview, memoryview]:
    """Return what stands before a tag, and the tag, as views; of a short payload the first is empty."""
    end = max(len(payload) - SIZE, 0)
    return memoryview(payload)[:end], memoryview(payload)[end:]


def read(payload: Bytes, *, who: str) -> Residues:
    """Read what `write` wrote.

    Raises:
        ProtocolError: If the payload has another length, or a number in it is no residue.
    """
    if len(payload) != SIZE:
        raise malformed(who, f"a tag of {SIZE} bytes", f"{len(payload)} bytes")
    tags = np.frombuffer(payload, "<u4").reshape(len(PRIMES), TIMES)
    if (tags >= np.array(PRIMES).reshape(-1, 1)).any():
        raise malformed(who, "a tag of residues below their prime", "a number that is none")
    return tags
