"""Who shares masks with whom: everyone with everyone in a session of up to 100 sites, with k neighbours each above.

Above 100, where half of the others are enough, the sites stand on a ring in an order that nobody picks, and each is the
neighbour of the k / 2 before it and the k / 2 after it. Its secrets are shared among those k, and t of them open one. The
order comes from all adverts of the session, so it is not known before the last site has chosen its keys. A coordinator that
holds back adverts, or a site in league with it that tries one key after another, gets a new order with each try: scrypt makes
a try cost about 50 ms.

How large k and t must be, for n sites of which c collude with the coordinator and r - c drop out, a uniform order:

- Opened by colluders. The colluders among k neighbours are hypergeometric: population n - 1, c of them, k drawn. A site's
  secrets fall to them with at least t. Union over n sites: n P[H >= t] <= 2^-40.
- Not opened at all. Dropouts among k neighbours, likewise: n P[k - H < t] <= 2^-20. That costs a round, nothing else.
- Falling apart. Masks hide each site's vector behind all others only if the honest survivors hang together; else the
  coordinator gets the sum of each part. Take away all but them. Two that follow each other on the ring are neighbours
  unless k / 2 or more between them are gone, and one such gap leaves a chain, so it takes two gaps that do not touch.
  * Passive coordinator: who drops out has nothing to do with the order. Two given stretches of k / 2 are gone with
    probability C(n - k, r - k) / C(n, r), and there are fewer than n^2 / 2 pairs: the product is at most 2^-40.
  * Active coordinator: it chooses who drops out, and when. But a site's own seed is opened only with t of its k
    neighbours, and the site next to a gap has only the k / 2 on its other side to give shares, and the colluders in the
    gap. So each gap holds at least t - k / 2 of them. Colluders in disjoint stretches are negatively associated: at most
    n^2 / 2 P[H' >= t - k / 2]^2 with H' of k / 2 draws, at most 2^-40. Here t is more than two thirds of k.
No secret is shared with its owner here, or the site next to a gap would count as one more.

Source:
    Bell et al. (2020), Secure single-server aggregation with (poly)logarithmic overhead, CCS, section 3: ring lattices in a
    random order, and the three conditions on a good graph. The tails are computed here and not bounded.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from hashlib import scrypt, sha256

from consilia.secagg.params import Session, least_threshold

FULL_UP_TO = 100
PRIVACY = 2.0**-40
AVAILABILITY = 2.0**-20
ONE_COLLUDES_IN = 10  # where the plan names fewer: a sparse graph shall not rest on everyone's honesty

_MOST = 512  # neighbours that are looked for


@dataclass(frozen=True)
class Graph:
    """Neighbours and holders of a session's sites.

    Attributes:
        names: The sites, ascending.
        threshold: Shares that open a secret.
        ring: Their order on the ring; None if everyone is everyone's neighbour.
        degree: k, even; the number of all others without a ring.
    """

    names: tuple[str, ...]
    threshold: int
    ring: tuple[str, ...] | None
    degree: int

    @classmethod
    def of(cls, session: Session, adverts: bytes, names: tuple[str, ...]) -> "Graph":
        """Return the graph that all sites of a session come to.

        Args:
            session: What they agree on.
            adverts: Digest of all adverts.
            names: Who advertised, ascending.
        """
        count = len(names)
        found = neighbourhood(count, session.colluders, max(count - session.fewest, 0), session.adversary)
        if found is None:
            return cls(names, session.threshold, None, count - 1)
        degree, threshold = found
        return cls(names, threshold, _order(session.context + adverts, names), degree)

    def neighbours(self, site: str) -> tuple[str, ...]:
        """Return those that share a mask with this site, ascending."""
        if self.ring is None:
            return tuple(name for name in self.names if name != site)
        place, count = self.ring.index(site), len(self.ring)
        steps = (step for half in range(1, self.degree // 2 + 1) for step in (-half, half))
        return tuple(sorted(self.ring[(place + step) % count] for step in steps))

    def holders(self, site: str) -> tuple[str, ...]:
        """Return those that hold shares of this site's secrets, ascending: in a full graph also itself."""
        return self.names if self.ring is None else self.neighbours(site)


def neighbourhood(count: int, colluders: int, dropouts: int, adversary: str) -> tuple[int, int] | None:
    """Return k and t of a session; None if everyone is everyone's neighbour.

    Args:
        count: n, sites.
        colluders: Sites that may pool what they know with the coordinator; at least a tenth is allowed for.
        dropouts: Sites that may drop out.
        adversary: "active" or "passive".
    """
    if count <= FULL_UP_TO:
        return None
    return least(count, max(colluders, count // ONE_COLLUDES_IN), dropouts, adversary, count // 2)


@lru_cache(maxsize=64)
def least(count: int, colluders: int, dropouts: int, adversary: str, most: int) -> tuple[int, int] | None:
    """Return the least k, even and at most `most`, that will do, and the least t for it; None if there is none."""
    for degree in range(2, min(most, _MOST) + 1, 2):
        for threshold in range(least_threshold(adversary, degree), degree + 1):
            if count * _tail(count - 1, colluders, degree, threshold) <= PRIVACY:
                break
        else:
            continue
        if count * _tail(count - 1, dropouts, degree, degree - threshold + 1) > AVAILABILITY:
            continue
        if _falls_apart(count, colluders, dropouts, degree, threshold, adversary) <= PRIVACY:
            return degree, threshold
    return None


def _falls_apart(count: int, colluders: int, dropouts: int, degree: int, threshold: int, adversary: str) -> float:
    pairs = count * count / 2
    if adversary == "active":
        return pairs * _tail(count, colluders, degree // 2, threshold - degree // 2) ** 2
    return pairs * _tail(count, min(colluders + dropouts, count), degree, degree)


def _tail(population: int, marked: int, drawn: int, least: int) -> float:
    """Return P[H >= least] for the marked among `drawn` of a population."""
    low, high = max(least, 0, drawn - (population - marked)), min(marked, drawn)
    total = _log_choose(population, drawn)
    return math.fsum(
        math.exp(_log_choose(marked, hit) + _log_choose(population - marked, drawn - hit) - total)
        for hit in range(low, high + 1)
    )


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


@lru_cache(maxsize=4)  # simulated sites of one process come to the same ring
def _order(seed: bytes, names: tuple[str, ...]) -> tuple[str, ...]:
    beacon = scrypt(seed, salt=b"consilia secagg ring", n=1 << 14, r=8, p=1, maxmem=1 << 26, dklen=32)
    return tuple(sorted(names, key=lambda name: sha256(beacon + name.encode()).digest()))
