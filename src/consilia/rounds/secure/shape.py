"""Which elements a secure sum adds: the update's integers, then the numbers that ride along."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.plan.secure import SecureTerms
from consilia.rounds.lanes import Lanes, limb_bits, read_update

UPDATE, EVALUATION = "update", "evaluation"


@dataclass(frozen=True)
class Shape:
    """The elements of one secure sum.

    Attributes:
        kept: Integers of the update, first.
        lanes: What rides along, after them.
    """

    kept: int
    lanes: Lanes

    @property
    def dim(self) -> int:
        """How many elements there are."""
        return self.kept + self.lanes.width

    def join(self, values: NDArray[np.int64], numbers: list[int]) -> NDArray[np.int64]:
        """Return what one site adds, shape (dim,)."""
        return np.concatenate([values, self.lanes.encode(numbers[: self.lanes.count])])

    def split(self, total: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
        """Return the sum of the updates' integers, shape (kept,), and the sums of the numbers."""
        return total[: self.kept], self.lanes.decode(total[self.kept :])


def shape_of(plan: RunPlan | SiteHalf, secure: SecureTerms, purpose: str, round_number: int, sites: int) -> Shape:
    """Return the elements of a round's sum; both ends derive the same.

    Args:
        plan: The checked plan, or a site's half of it.
        secure: Its secure sum.
        purpose: "update" or "evaluation".
        round_number: The round.
        sites: All sites of the plan, who are asked for scores.
    """
    largest = secure.ring.largest if secure.ring is not None else 0
    limb = limb_bits(secure.value_bound, largest, sites)
    if purpose == EVALUATION:
        return Shape(
            0, Lanes(limb, 2 if plan.plan.evaluation.metrics == "charged" else 3)
        )  # noised counts have no loss
    # Weights of runs with a claim are public and fixed, and their losses stay at the sites.
    return Shape(
        secure.grids[plan.phase(round_number).index].kept, Lanes(limb, 2 if plan.plan.privacy.unit == "none" else 0)
    )


def weight_and_loss(plan: RunPlan, names: Iterable[str], numbers: Sequence[int]) -> tuple[float, float | None]:
    """Return the sum of these sites' weights, and their mean training loss where it may be known.

    Args:
        plan: The checked plan.
        names: Whose updates are in the sum.
        numbers: Sums of what rode along; nothing did where weights are the plan's public numbers.
    """
    weights = {terms.name: terms.weight for terms in plan.sites}
    if not numbers:
        return sum(weights[name] for name in names), None
    shares, weighted = read_update(numbers)
    return shares * max(weights.values()), weighted / shares if shares > 0 else None
