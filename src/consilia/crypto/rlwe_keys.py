"""The key ceremony: every site makes a part of the key and shares it out; no process ever holds the key.

Per site, once a run: `contribute` gives a public part, a commitment to it, and one share for each site (to be sealed to it).
When all commitments have been exchanged, and only then, the public parts are; `joint_key` adds them. Each site adds the
shares that it received (`KeyShare.gather`): any t of these sums determine the key, fewer say nothing about it.

Shares are Shamir's, of each value of the transform of s_i modulo each prime, at the site's number from 1 to n. Since the
transform and the sharing are linear, a share of the sum of the keys is the sum of the shares. With each share goes the
site's part of a key that all sites have in common and the coordinator has not (`rlwe_tags`).

Guarantees:
    With the randomness of one site unknown, fewer than t shares are independent of s = s_1 + ... + s_n, and the joint
    public key is as hard to tell from a uniform one as that site's own (RLWE with a ternary secret). Commitments keep a site
    from choosing its part after it has seen the others', which could cancel them.
    **Not covered**: that a site's shares belong to its public part, or to one polynomial. A site that lies makes the sums
    unreadable, which `rlwe_threshold.combine` sees; it does not see who lied. The messages must come over signed channels.

Source:
    Shamir (1979), How to share a secret.
    Mouchet, Bertrand and Hubaux (2023), An efficient threshold access-structure for RLWE-based multiparty homomorphic
    encryption.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto.rlwe_field import Factor, Residues
from consilia.crypto.rlwe_ntt import DEGREE, SIDE, transform
from consilia.crypto.rlwe_parameters import PRIMES, RlweParameters
from consilia.crypto.rlwe_residues import modulo
from consilia.crypto.rlwe_sampling import errors, ternary, uniform
from consilia.crypto.rlwe_wire import malformed, pack, unpack

GROUP_KEY = 32  # bytes


@dataclass(frozen=True)
class Contribution:
    """What a site made for the ceremony. Its part of the key is not in it: nobody needs it any more.

    Attributes:
        public: b_i = e_i - a s_i, transformed; to everyone, once all commitments are there.
        commitment: 32 bytes, to everyone, first.
        shares: By the number of the site to seal it to, this site's own included.
    """

    public: bytes
    commitment: bytes
    shares: Mapping[int, bytes] = field(repr=False)


def reference(context: bytes) -> Residues:
    """Return the common reference a, transformed, shape (3, 64, 64): a hash of the run's context that nobody chooses."""
    found = np.empty((len(PRIMES), SIDE, SIDE), np.uint32)
    for place, p in enumerate(PRIMES):
        seed = hashlib.shake_256(b"consilia rlwe reference" + bytes([place]) + context)
        words = np.frombuffer(seed.digest(5 * SIDE * SIDE), "<u4") & np.uint32(
            (1 << 30) - 1
        )  # a quarter more than needed
        found[place] = words[words < p][: SIDE * SIDE].reshape(SIDE, SIDE)
    return found


def contribute(parameters: RlweParameters, site: int, context: bytes, rng: SecretRng) -> Contribution:
    """Make site number `site`'s part of the key.

    Args:
        parameters: The plan's.
        site: From 1 to n; the order of names is the plan's.
        context: What the run is about; the same at every site.
        rng: A secret stream of this site.
    """
    secret, error, a, group = ternary(1, rng), errors(1, rng), reference(context), rng.token(GROUP_KEY)
    public = np.empty((len(PRIMES), 1, SIDE, SIDE), np.uint32)
    shares = np.empty((parameters.sites, len(PRIMES), 1, SIDE, SIDE), np.uint32)
    for place, p in enumerate(PRIMES):
        ntt, prime = transform(p), transform(p).prime
        s = ntt.forward_small(secret)
        product = prime.times(s, Factor(prime.centred(a[place])))
        public[place] = prime.residues(prime.reduce(ntt.forward_small(error) - product))
        higher = [prime.centred(uniform(p, DEGREE, rng)).reshape(s.shape) for _ in range(parameters.threshold - 1)]
        for holder in range(1, parameters.sites + 1):
            value = np.zeros_like(s)
            for coefficient in (*reversed(higher), s):  # Horner
                value = prime.reduce(value * float(holder) + coefficient)
            shares[holder - 1, place] = prime.residues(value)
    packed = pack(public)
    return Contribution(packed, _commitment(context, site, packed),
                        {holder: group + pack(share) for holder, share in enumerate(shares, 1)})  # fmt: skip


def _commitment(context: bytes, site: int, public: Bytes) -> bytes:
    """Return a hash that binds a site to its public part; the part has enough entropy to be hidden by it."""
    head = b"consilia rlwe commitment" + len(context).to_bytes(8, "big") + context + site.to_bytes(4, "big")
    return hashlib.sha256(head + bytes(public)).digest()


@dataclass(frozen=True)
class JointKey:
    """The public key that belongs to the sum of all sites' keys: (b, a), transformed.

    Attributes:
        context: What the run is about.
        b: Residues, shape (3, 64, 64).
    """

    context: bytes
    b: Residues = field(repr=False)

    @cached_property
    def factors(self) -> tuple[tuple[Factor, Factor], ...]:
        """The pair (b, a) modulo each prime, ready to be multiplied by."""
        pairs = zip(PRIMES, self.b, reference(self.context), strict=True)
        return tuple(
            (Factor(transform(p).prime.centred(b)), Factor(transform(p).prime.centred(a))) for p, b, a in pairs
        )


def joint_key(
    parameters: RlweParameters, context: bytes, publics: Mapping[int, Bytes], commitments: Mapping[int, bytes]
) -> JointKey:
    """Add up the public parts of all sites.

    Raises:
        ProtocolError: If a site's part is missing, malformed, or another than the one it committed to.
    """
    _require_all(parameters, publics, "public parts of the joint key")
    total = np.zeros((len(PRIMES), SIDE, SIDE), np.uint64)
    for site, public in publics.items():
        if commitments.get(site) != _commitment(context, site, public):
            raise malformed(f"the joint key, site {site}", "the public part that the site committed to", "another")
        total += unpack(public, PRIMES, 1, who=f"the public key of site {site}")[:, 0]
    return JointKey(context, modulo(total, PRIMES))


@dataclass(frozen=True)
class KeyShare:
    """What a site keeps for the run: its share of the joint key, and nobody else's.

    Attributes:
        site: The site's number, from 1.
        values: Residues of the share in the transformed domain, shape (3, 64, 64).
        group: The key that all sites have in common, 32 bytes.
    """

    site: int
    values: Residues = field(repr=False)
    group: bytes = field(repr=False)

    @classmethod
    def gather(cls, parameters: RlweParameters, site: int, shares: Mapping[int, Bytes]) -> "KeyShare":
        """Add up the shares that site number `site` received, by sender, its own included.

        Raises:
            ProtocolError: If a share is missing or malformed.
        """
        _require_all(parameters, shares, f"shares of the joint key for site {site}")
        total = np.zeros((len(PRIMES), SIDE, SIDE), np.uint64)
        group = hashlib.sha256(b"consilia rlwe group")
        for sender, share in sorted(shares.items()):
            total += unpack(share[GROUP_KEY:], PRIMES, 1, who=f"the share from site {sender}")[:, 0]
            group.update(share[:GROUP_KEY])
        return cls(site, modulo(total, PRIMES), group.digest())


def _require_all(parameters: RlweParameters, parts: Mapping[int, Bytes], what: str) -> None:
    everyone = set(range(1, parameters.sites + 1))
    if set(parts) != everyone:
        raise ProtocolError.of(
            what, needs=f"one of each of the {parameters.sites} sites",
            got=f"missing {sorted(everyone - set(parts))}, unknown {sorted(set(parts) - everyone)}",
            hint="The key is made by all sites of the run, once: wait for those that are missing",
        )  # fmt: skip
