"""Threshold RLWE, opening a sum: t sites answer with partial decryptions, the coordinator puts them together.

The coordinator announces which t sites open the sum (S) and whose vectors are in it, and hands each site c_1 and the tag
(`RlweSums.to_open`). Site j answers lambda_j share_j c_1 + flood_j, lambda_j being its Lagrange coefficient for S: the answers
add up to c_1 s and their floods. The flood comes after lambda, which is as large as q.

Guarantees:
    Without one of the t answers the sum cannot be read. Given the opened sum, the answers say nothing more to fewer than t
    sites with the coordinator: a coefficient's error e, which they would learn without floods, shifts one that is uniform over
    2^f values, and the two laws are |e| / 2^f apart. For ten sites' vectors e has a standard deviation of 2^11.2 and is below
    2^14.6 but for a chance of 2^-70: with f = 62 that is 2^-47 a coefficient, with the least f that is allowed 2^-40.
    **A site answers once a context**, and only if the tag shows that the sum is one of at least `fewest` listed
    sites' vectors of this context. Two sums that differ in one vector would show it; and answers for one sum under fresh
    floods would, many together, show its error and with it the key. More than half of the sites open a sum, so no two
    disjoint sets can open two sums of one context.
    **Not covered**: a coordinator together with a site (`rlwe_tags`). Wrong answers of sites: one for
    another share, sum, set or context is found (`combine`), but where its bytes are well formed not whose fault it was; and a
    site that adds multiples of the step to its answer, or to its vector, shifts the sum unseen.

Source:
    Asharov et al. (2012), Multiparty computation with low communication, computation and interaction via threshold FHE.
    Mouchet, Bertrand and Hubaux (2023), An efficient threshold access-structure for RLWE-based multiparty homomorphic
    encryption.
"""

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto import rlwe_tags
from consilia.crypto.rlwe import RlweSums
from consilia.crypto.rlwe_field import Factor, Polynomials
from consilia.crypto.rlwe_keys import KeyShare
from consilia.crypto.rlwe_ntt import GROUP, SIDE, transform
from consilia.crypto.rlwe_parameters import PRIMES, RlweParameters
from consilia.crypto.rlwe_residues import modulo, quotient
from consilia.crypto.rlwe_sampling import floods
from consilia.crypto.rlwe_wire import malformed, pack, unpack

_DIGEST = 32  # bytes


@dataclass(frozen=True)
class Opening:
    """What sites are asked to open; the coordinator's to say, each site's to judge.

    Attributes:
        context: What the vectors are for, the one they were encrypted with.
        dim: Length of the vectors.
        contributors: Numbers of the sites whose vectors are in the sum.
        decrypters: Numbers of the sites that answer, S.
    """

    context: bytes
    dim: int
    contributors: tuple[int, ...]
    decrypters: tuple[int, ...]


def partial(
    parameters: RlweParameters, share: KeyShare, opening: Opening, masks: Bytes, rng: SecretRng, *, answered: Set[bytes]
) -> bytes:
    """Return a site's answer. Its context must be remembered, as answered, before the answer leaves, for as long as the share is.

    Args:
        parameters: The plan's.
        share: The site's own.
        opening: What is asked for; with `masks` it is hashed into the answer.
        masks: What `RlweSums.to_open` gave.
        rng: A secret stream of this site.
        answered: The contexts that this site answered for before; it may send the same bytes again, and nothing else. A
            vector belongs to one context, so that sums of two contexts have none in common.

    Raises:
        ProtocolError: If the site has answered for this context, the decrypters are not `threshold` different sites with
            this one among them, the contributors not `fewest` to `count` different ones, `masks` is malformed, or its tag
            is not that of such a sum.
    """
    _require_opening(parameters, opening)
    if opening.context in answered:
        raise malformed("a sum to open", "a context that this site has not answered for", "one that it has")
    if share.site not in opening.decrypters:
        raise malformed(
            "a partial decryption", f"this site ({share.site}) among the decrypters", f"{opening.decrypters}"
        )
    blocks, kept = parameters.blocks(opening.dim), parameters.kept
    polynomials, tag = rlwe_tags.split(masks)
    c1 = unpack(polynomials, PRIMES, blocks, who="a sum to open")
    claimed = rlwe_tags.read(tag, who="a sum to open")
    if not np.array_equal(claimed, rlwe_tags.tag(share.group, opening.context, c1, opening.contributors)):
        raise malformed(
            "a sum to open", "the sum of exactly what the listed sites encrypted for this context", "another"
        )
    factors = [_weighted(p, share, opening, place) for place, p in enumerate(PRIMES)]
    out = np.empty((len(kept), blocks, SIDE, SIDE), np.uint32)
    for start in range(0, blocks, GROUP):
        part = slice(start, min(start + GROUP, blocks))
        high, low = floods(part.stop - start, parameters.flood, rng)
        answer: list[Polynomials] = []
        for place, p in enumerate(PRIMES):
            ntt, prime = transform(p), transform(p).prime
            product = ntt.inverse(prime.times(prime.centred(c1[place, part]), factors[place]))
            product += prime.times(high, prime.factor(1 << 31))
            answer.append(prime.reduce(product + low))
        for place, (p, rounded) in enumerate(zip(kept, quotient(answer, len(kept)), strict=True)):
            out[place, part] = transform(p).prime.residues(rounded)
    return _binding(opening, masks) + pack(out)


def _weighted(p: int, share: KeyShare, opening: Opening, place: int) -> Factor:
    """Return lambda_j share_j modulo p, to multiply by."""
    prime, weight = transform(p).prime, 1
    for other in opening.decrypters:
        if other != share.site:
            weight = weight * other * pow(other - share.site, -1, p) % p
    return Factor(prime.times(prime.centred(share.values[place]), prime.factor(weight)))


def combine(sums: RlweSums, total: Bytes, opening: Opening, partials: Mapping[int, Bytes]) -> NDArray[np.int64]:
    """Open a sum with the answers of its decrypters, by number: shape (dim,).

    A wrong share, or an answer for another sum, leaves coefficients uniform modulo Q. Each lies too far from a multiple of
    the step with a chance of at least 1 in 18, so that 4096 of them pass with one of (17 / 18)^4096 < 2^-300.

    Raises:
        ProtocolError: If the answers are too few, too many, malformed or for something else, or do not open this sum to
            as many vectors as there are contributors.
    """
    parameters, dim = sums.parameters, opening.dim
    _require_opening(parameters, opening)
    if set(partials) != set(opening.decrypters):
        raise malformed(
            "an opening", f"answers of the sites {sorted(opening.decrypters)}", f"those of {sorted(partials)}"
        )
    blocks, kept = parameters.blocks(dim), parameters.kept
    if len(total) != sums.expected_size(dim):
        raise malformed("an encrypted sum", f"{sums.expected_size(dim)} bytes", f"{len(total)}")
    masks = sums.to_open(total, dim)
    binding = _binding(opening, masks)
    opened = unpack(total[: len(total) - len(masks)], kept, blocks, who="an encrypted sum").astype(np.uint64)
    for site, answer in partials.items():
        who = f"the partial decryption of site {site}"
        if answer[:_DIGEST] != binding:
            raise malformed(who, "an answer for this sum, its sites and its context", "one for another")
        opened += unpack(answer[_DIGEST:], kept, blocks, who=who)
    lanes, distance = _rounded(parameters, modulo(opened, kept))
    if distance > parameters.noise:
        raise malformed("the partial decryptions", f"errors of at most {parameters.noise}", f"{distance}")
    added, largest = len(opening.contributors), int(np.abs(lanes).max())
    if lanes[0] != added or largest > added * parameters.bound or lanes[dim + 1 :].any():
        raise malformed("an opened sum", f"{added} vectors of values up to {parameters.bound}",
                        f"{lanes[0]} vectors, a value up to {largest}, or more than {dim} values")  # fmt: skip
    return lanes[1 : dim + 1]


def _rounded(parameters: RlweParameters, opened: NDArray[np.uint32]) -> tuple[NDArray[np.int64], int]:
    """Return the multiples of the step that integers modulo Q are nearest to, shape (blocks x 4096,), and how far they are."""
    value, modulus = opened[0].astype(np.int64).ravel(), parameters.kept[0]
    for residue, p in zip(opened[1:], parameters.kept[1:], strict=True):  # Garner's digits; below 2^60
        value = value + modulus * ((residue.ravel() - value) % p * pow(modulus, -1, p) % p)
        modulus *= p
    value = np.where(value > modulus // 2, value - modulus, value)
    nearest = (value + parameters.step // 2) // parameters.step
    return nearest, int(np.abs(value - nearest * parameters.step).max())


def _require_opening(parameters: RlweParameters, opening: Opening) -> None:
    """Refuse sets that are too small, too large, or name a site twice or one that there is not.

    Raises:
        ProtocolError: Naming the set.
    """
    everyone, t = set(range(1, parameters.sites + 1)), parameters.threshold
    for what, found, least, most in (
        ("decrypters", opening.decrypters, t, t), ("contributors", opening.contributors, parameters.fewest, parameters.count),
    ):  # fmt: skip
        if not (least <= len(found) <= most and len(set(found)) == len(found) and set(found) <= everyone):
            raise malformed(f"the {what} of an opening",
                            f"{least} to {most} different sites of 1 to {parameters.sites}", f"{sorted(found)}")  # fmt: skip


def _binding(opening: Opening, masks: Bytes) -> bytes:
    """Return a hash of what an answer is for."""
    state = hashlib.sha256(b"consilia rlwe opening")
    for sites in (opening.decrypters, opening.contributors):
        state.update(b"".join(number.to_bytes(4, "big") for number in (len(sites), *sorted(sites))))
    state.update(len(opening.context).to_bytes(8, "big") + opening.context + opening.dim.to_bytes(8, "big"))
    state.update(masks)
    return state.digest()
