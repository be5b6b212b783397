"""Where a schedule's decisions come from: a seed, and a list of faults to leave out when a failing schedule is made smaller."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

FAULTS = ("drop", "delay", "repeat", "replay", "another body", "corrupt", "gone", "kill site", "kill coordinator")
_RATES = (0.0, 0.0, 0.03, 0.08, 0.2)
_KILLS = (0.0, 0.01, 0.03, 0.08)


@dataclass
class Chance:
    """Answers whether a fault happens here.

    Attributes:
        seed: Gives every decision.
        without: Numbers of decisions that come out as "no fault", whatever the seed says.
        fired: What happened: (number of the decision, in words).
        rates: How often each kind of fault happens; drawn from the seed when absent.
    """

    seed: int
    without: frozenset[int] = frozenset()
    fired: list[tuple[int, str]] = field(default_factory=list)
    rates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._asked = 0
        # Some schedules are calm and some are storms: one rate for all would try neither.
        self.rates = self.rates or {
            fault: self._random.choice(_KILLS if "kill" in fault else _RATES) for fault in FAULTS
        }

    def happens(self, fault: str, where: str, *, most: int = 10**9) -> bool:
        """Return whether this fault happens now, at most so often in the schedule."""
        self._asked += 1
        hit = self._random.random() < self.rates.get(fault, 0.0)
        if not hit or self._asked in self.without or sum(text.startswith(fault) for _, text in self.fired) >= most:
            return False
        self.fired.append((self._asked, f"{fault}: {where}"))
        return True

    def between(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)
