"""The public numbers of a secure sum, the same at both ends: who must answer, and how updates become integers."""

from dataclasses import dataclass

from consilia.core.ring import Ring
from consilia.secagg.params import least_threshold


@dataclass(frozen=True)
class GridTerms:
    """How the vectors of one phase become integers.

    Attributes:
        kept: Coordinates that are sent.
        scale: Grid steps per unit of the weighted vector; a power of two where noise is distributed.
        values: Bound on a coordinate of one site's integers, without noise.
        cut: What coordinates are cut to before they become integers; None where the clip norm bounds them.
        l2: How far adding or removing one unit of the site that counts most moves its integers (l2), in grid steps, rounding
            included; None where no noise is added to integers.
        share_variance: Variance of one site's share of the noise, in squared grid steps; 0 without.
    """

    kept: int
    scale: float
    values: int
    cut: float | None = None
    l2: float | None = None
    share_variance: int = 0

    def deviation(self, shares: int) -> float:
        """Return the standard deviation of the sum of so many shares on each coordinate, in units of the weighted vector."""
        return float((shares * self.share_variance) ** 0.5) / self.scale


@dataclass(frozen=True)
class SecureTerms:
    """A run's secure sum.

    Attributes:
        mode: masks, rlwe, paillier or attested.
        adversary: What the coordinator may do, for masks: "active" or "passive".
        cohort: n: sites that a round asks, the most of any round.
        dropouts: How many of them may fail to answer.
        colluders: How many may pool what they know with the coordinator.
        threshold: t: sites that must help to open a sum; 1 where one key opens it.
        ring: What integers are added in, room for every site and all noise; None where sealed real numbers are added.
        grids: How each phase makes its integers; empty without a ring.
        value_bound: Bound on one site's integers, noise included.
        distributed: Whether sites add shares of the noise.
    """

    mode: str
    adversary: str
    cohort: int
    dropouts: int
    colluders: int
    threshold: int
    ring: Ring | None = None
    grids: tuple[GridTerms, ...] = ()
    value_bound: int = 0
    distributed: bool = False

    @property
    def fewest(self) -> int:
        """Answers without which no sum is opened: n less the tolerated dropouts."""
        return self.cohort - self.dropouts

    @property
    def honest(self) -> int:
        """Shares that carry the whole noise: those of the fewest answers that come from no colluder."""
        return self.fewest - self.colluders

    @property
    def excess(self) -> float:
        """How many times its planned variance the noise of a sum has when every site answers and none colludes."""
        return self.cohort / self.honest

    def shares(self, who: str) -> int | None:
        """Return how many shares of the noise an adversary cannot subtract, or None where nothing is left to count on.

        Guarantees:
            At least `fewest` sites are in a sum that is opened, and `colluders` of them may know each other's shares, or have
            drawn none: they are counted for nobody. A site knows its own. Where every site holds the key (paillier), and
            where a site may build a vector out of others' (rlwe), one that sides with the coordinator opens single vectors,
            which carry one share each: no bound is stated.
        """
        match who:
            case "server" | "world":
                return self.honest
            case "other-sites":
                return self.fewest - max(self.colluders, 1)
            case "server+colluding-sites":
                return self.honest if self.colluders and self.mode == "masks" else None
        return None


def threshold(mode: str, adversary: str, sites: int) -> int:
    """Return t of n: how many of `sites` must help to open a sum. Threshold encryption takes that of an active adversary.

    Source:
        `secagg.params.least_threshold`.
    """
    if mode not in ("masks", "rlwe"):
        return 1
    return least_threshold(adversary if mode == "masks" else "active", sites)
