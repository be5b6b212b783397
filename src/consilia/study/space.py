"""The space of a search: what each key may be, and candidates drawn from it, each of them a plan of its own."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from consilia.core.canonical import Json
from consilia.core.errors import PlanError, Problem
from consilia.core.randomness import SecretRng
from consilia.plan.faults import nearest, sections, show
from consilia.plan.load import canonical, from_json
from consilia.plan.schema import Plan

Values = Mapping[str, Json]
"""Plan key -> value: one candidate, or a part of one."""

# What a trial may charge follows from these: every combination of their values is accounted before the first trial.
COUNTED = (
    "training.rounds", "training.local_epochs", "training.local_steps", "training.batch_size", "training.sampling_rate",
    "training.batch_cap", "evaluation.every", "evaluation.noise_multiplier",
)  # fmt: skip
MOST_COMBINATIONS = 64
_SECTIONS = ("model", "training", "aggregation")
_ALONE = ("evaluation.every", "evaluation.noise_multiplier", "privacy.clip_norm", "privacy.control_clip_norm",
          "privacy.clipping", "privacy.target_quantile", "privacy.clip_learning_rate", "privacy.count_noise")  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """One key and what it may be: one of a list, or a number between two ends.

    Attributes:
        key: The plan key.
        values: The list; empty for a range.
        low, high: The ends of a range.
        log: Whether the range is uniform in the logarithm.
    """

    key: str
    values: tuple[Json, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def probes(self) -> tuple[Json, ...]:
        """All of a list, or both ends of a range and a number in between that is not whole."""
        return self.values or (self.low, self.between(math.sqrt(0.2)), self.high)

    def between(self, share: float) -> float:
        """Return the number that far up the range, at six digits."""
        if self.log:
            value = math.exp((1 - share) * math.log(self.low) + share * math.log(self.high))
        else:
            value = self.low + share * (self.high - self.low)
        return min(max(float(f"{value:.6g}"), self.low), self.high)

    def draw(self, share: float) -> Json:
        """Return the value that a uniform number in [0, 1) names."""
        return self.values[int(share * len(self.values))] if self.values else self.between(share)


def axes(searched: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Return what each key may be.

    Raises:
        PlanError: With every key that a search may not try, and every list or range that is none.
    """
    problems: list[Problem] = []
    found: list[Axis] = []
    for key, value in sorted(searched.items()):
        fault = _forbidden(key) or _malformed(key, value)
        if fault is not None:
            problems.append(fault)
        elif isinstance(value, list):
            found.append(Axis(key, tuple(value)))
        else:
            found.append(Axis(key, (), float(value["low"]), float(value["high"]), bool(value.get("log", False))))
    combinations = math.prod(len(axis.values) for axis in found if axis.key in COUNTED and axis.values)
    if combinations > MOST_COMBINATIONS:
        named = ", ".join(axis.key for axis in found if axis.key in COUNTED)
        problems.append(Problem("tune section search", f"at most {MOST_COMBINATIONS} combinations of the keys that the price "
                                f"depends on ({named})", f"{combinations}", "Try fewer values of them"))  # fmt: skip
    if problems:
        raise PlanError(problems)
    return tuple(found)


def combinations(space: Sequence[Axis]) -> Iterator[dict[str, Json]]:
    """Yield every combination of the keys that a trial's charge follows from; one empty one where none is searched."""
    counted = [axis for axis in space if axis.key in COUNTED]
    for values in product(*(axis.values for axis in counted)):
        yield dict(zip((axis.key for axis in counted), values, strict=True))


def counted_part(values: Values) -> dict[str, Json]:
    """Return the part of a candidate that its charge follows from."""
    return {key: value for key, value in values.items() if key in COUNTED}


def draw(space: Sequence[Axis], rng: SecretRng) -> dict[str, Json]:
    """Draw a candidate: each key on its own.

    Secretly, and anew for each trial: were the order of candidates known, the trials would not be alike to who knows it.
    """
    return {axis.key: axis.draw(float(share)) for axis, share in zip(space, rng.uniform(len(space)), strict=True)}


def with_values(plan: Plan, values: Values) -> Plan:
    """Return the plan with other values of some keys.

    Raises:
        PlanError: If a value is none that its key may have.
    """
    raw: Any = canonical(plan)
    for key, value in values.items():
        section, _, name = key.partition(".")
        raw[section][name] = value
    return from_json(raw)


def _forbidden(key: str) -> Problem | None:
    section, _, name = key.partition(".")
    known = sections()
    if name not in known.get(section, {}):
        every = [f"{part}.{each}" for part, names in known.items() for each in names]
        guess = nearest(key, every)
        return Problem(f"tune key search.{key}", "to be a key of a plan", "an unknown key",
                       f"Did you mean {guess}?" if guess else "As in training.learning_rate")  # fmt: skip
    if section in _SECTIONS or key in _ALONE:
        return None
    return Problem(f"tune key search.{key}", "a key of training, model or aggregation, or one that only bounds or scales "
                   "(such as privacy.clip_norm)", "one that all trials share: data, seed, unit, noise or epsilon",
                   "Set it in the plan; the noise follows from the epsilon of the whole search")  # fmt: skip


def _malformed(key: str, value: Any) -> Problem | None:
    who = f"tune key search.{key}"
    if isinstance(value, list):
        if not value or any(isinstance(item, dict) for item in value):
            return Problem(who, "a list of values", show(value), "As in [0.1, 0.3, 1.0]")
        if len({repr(item) for item in value}) < len(value):
            return Problem(who, "each value once", show(value), "A value that stands twice is drawn twice as often")
        return None
    if not isinstance(value, dict) or not {"low", "high"} <= set(value) <= {"low", "high", "log"}:
        return Problem(
            who, "a list of values, or { low = .., high = .., log = true }", show(value), "As in [0.1, 0.3, 1.0]"
        )
    low, high, log = value["low"], value["high"], value.get("log", False)
    numbers = all(
        isinstance(end, int | float) and not isinstance(end, bool) and abs(end) <= sys.float_info.max
        for end in (low, high)
    )  # compared, not converted: a whole number may be too large for a float
    if not numbers or not isinstance(log, bool) or not low < high or (log and low <= 0):
        return Problem(
            who, "numbers low < high, above 0 with log = true", show(value), "As in { low = 0.1, high = 4, log = true }"
        )
    if key in COUNTED:
        return Problem(
            who, "a list: the price of the search follows from this key", "a range", "List the values to try"
        )
    return None
