"""What one site's stack costs and how it is trained; every number is public."""

import math
from dataclasses import dataclass, replace

from consilia.core.errors import PlanError, Problem
from consilia.dp.event import EpsilonDeltaEvent
from consilia.dp.objective import ObjectivePerturbation, free_ridge
from consilia.learning.stacking.shape import StackShape

_WITHIN = 1.0 - 2.0**-50  # shares are cut so that their sum, rounded, is never above epsilon


@dataclass(frozen=True)
class StackWork:
    """One site's work.

    Attributes:
        shape: The stack's shape.
        epsilon: Of the whole answer.
        rows: Registered upper bound on the site's rows.
        ridge: Ridge of every model, at least 1, in units of the least that costs no noise (s^2 / its epsilon). 1 to 10 suit.
        row_bound: s of the low-level rows (columns and the constant 1); the high level's is 1.
        importance: features: public weights by which epsilon is shared out over blocks; equal shares when None.
        measured: features: share of epsilon spent on measuring the importance at the site instead; 0 does not.
        high_fraction: Chance of a row to train the high level; the others train the low level.
        pull: PST-H: weight that draws every model towards the source's, in units of the ridge.
        delta: Of the whole answer. 0: radial noise; above: Gaussian, which is smaller where there are many columns.

    Guarantees:
        Training is (epsilon, delta)-differentially private, add-remove. Rows fall into disjoint sets by coins of their own:
        in the low level's set the releases add up to at most (epsilon, delta) (features), or each row is in one model's part
        (samples); the high level's set meets one release of them. See docs/guarantees-stacking.md, theorem 4.
    """

    shape: StackShape
    epsilon: float
    rows: int
    ridge: float = 3.0
    row_bound: float = 1.0
    importance: tuple[float, ...] | None = None
    measured: float = 0.0
    high_fraction: float = 0.25
    pull: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise PlanError(problems)
        self.mechanism(1.0)  # rows and row_bound are refused here, before any data is read

    def _problems(self) -> list[Problem]:
        found, features = [], self.shape.parts == "features"
        weights = self.importance
        if weights is not None and not (
            features and len(weights) == len(self.shape.blocks) and all(0 < weight < math.inf for weight in weights)
        ):
            found.append(Problem("the importance of a stack's blocks", "parts of features and a number above 0 a block",
                                 f"{weights}", "Leave it out for equal shares"))  # fmt: skip
        if not (0 <= self.measured < 1 and (self.measured == 0 or (features and weights is None))):
            found.append(Problem("a measured importance", "parts of features, no public one, and a share in [0, 1)",
                                 f"{self.measured:g}", "A tenth is usual"))  # fmt: skip
        if not 0 < self.high_fraction < 1:
            found.append(Problem("a stack", "a chance between 0 and 1 for a row to train the high level",
                                 f"{self.high_fraction:g}", "A quarter is usual"))  # fmt: skip
        if not (1 <= self.ridge < math.inf and 0 <= self.pull < math.inf):
            found.append(Problem("a stack", "a ridge of at least 1 and a pull of at least 0",
                                 f"{self.ridge:g} and {self.pull:g}", "Usual are 3 and 0"))  # fmt: skip
        if not (0 < self.epsilon < math.inf and 0 <= self.delta < 1):
            found.append(Problem("a stack", "an epsilon above 0 and a delta in [0, 1)",
                                 f"{self.epsilon:g} and {self.delta:g}", "Usual are 1 and 1e-5"))  # fmt: skip
        return found

    @property
    def shares(self) -> tuple[float, ...]:
        """What part of epsilon each low-level model has, unless importance is measured; 1 each where rows are split."""
        if self.shape.parts != "features":
            return (1.0,) * len(self.shape.blocks)
        return shared_out(self.importance or (1.0,) * len(self.shape.blocks), 1.0 - self.measured)

    @property
    def event(self) -> EpsilonDeltaEvent:
        """What one answer costs: what a row of the low level's set can lose at most; the high level's can lose no more."""
        return EpsilonDeltaEvent(self.epsilon, self.delta)

    def mechanism(self, share: float) -> ObjectivePerturbation:
        """Return a low-level model's mechanism at its share of (epsilon, delta)."""
        epsilon = self.epsilon * share
        ridge = self.ridge * free_ridge(epsilon, self.row_bound)
        return ObjectivePerturbation(epsilon, ridge, self.rows, self.row_bound, self.pull * ridge, self.delta * share)

    def high_mechanism(self) -> ObjectivePerturbation:
        """Return the high level's, whose whole ridge draws towards a source: another site's, or equal votes."""
        pull = self.ridge * free_ridge(self.epsilon, 1.0) * (1.0 + self.pull)
        return ObjectivePerturbation(self.epsilon, 0.0, self.rows, 1.0, pull, self.delta)

    def with_(self, **changes: object) -> "StackWork":
        """Return a copy with some fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]


def shared_out(weights: tuple[float, ...], whole: float) -> tuple[float, ...]:
    """Return parts of `whole` in proportion to weights; their floating-point sum is never above it."""
    total = math.fsum(weights)
    return tuple(weight / total * whole * _WITHIN for weight in weights)
