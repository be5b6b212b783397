"""What the columns of a CSV file mean."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from consilia.core.errors import PlanError, Problem


@dataclass(frozen=True)
class CsvSpec:
    """Which columns are used, and the public numbers and lists they are encoded with.

    Attributes:
        label: The column to predict.
        classes: Values of the label, in order. When absent: the values found, sorted; then every site must
            hold every class.
        numeric: Column -> public range [low, high].
        categories: Column -> public list of values; any other value counts as missing.
        missing: drop: leave out rows with a missing value. indicate: keep them; every column gets an
            indicator.
        id_column: Unique id of a row; the row's number when absent.
        site_column: The site of a row.
        patient_column: The patient of a row.
        known_sites: The sites there are; any other name is a fault.

    Raises:
        PlanError: If the parts contradict each other.
    """

    label: str
    classes: Sequence[str] | None = None
    numeric: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: Literal["drop", "indicate"] = "drop"
    id_column: str | None = None
    site_column: str | None = None
    patient_column: str | None = None
    known_sites: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        problems = list(self._contradictions())
        if problems:
            raise PlanError(problems)

    def _contradictions(self) -> Iterator[Problem]:
        if not self.numeric and not self.categories:
            who = "plan keys data.numeric and data.categories"
            yield Problem(who, "at least one column", "none", "Name the columns to learn from")
        if self.label in self.numeric or self.label in self.categories:
            hint = "A model that is given the answer learns nothing"
            yield Problem("plan key data.label", "a column that is no feature", repr(self.label), hint)
        for column in sorted(set(self.numeric) & set(self.categories)):
            yield Problem(f"column {column!r}", "one meaning", "numeric and category", "Name it once")
        for column, (low, high) in self.numeric.items():
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                needs = "a finite range [low, high] with low < high"
                who = f"plan key data.numeric.{column}"
                yield Problem(who, needs, f"[{low}, {high}]", "Give its public range")
        lists = {"classes": self.classes, **{f"categories.{name}": v for name, v in self.categories.items()}}
        for key, values in lists.items():
            repeated = [value for value, times in Counter(values or ()).items() if times > 1]
            if repeated:
                who = f"plan key data.{key}"
                yield Problem(who, "different values", f"{repeated} twice", "Name each once")
            fewest = 2 if key == "classes" else 1
            if values is not None and len(values) < fewest:
                who = f"plan key data.{key}"
                yield Problem(who, f"at least {fewest} values", str(len(values)), "Name them")

    def columns_needed(self) -> list[str]:
        """Return the names that the file's header must hold, each once."""
        special = (self.id_column, self.site_column, self.patient_column)
        names = [self.label, *self.numeric, *self.categories, *(name for name in special if name is not None)]
        return list(dict.fromkeys(names))
