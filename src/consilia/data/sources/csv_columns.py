"""One reader a kind of column: it takes cells in chunks, keeps them small, and records faults by line."""

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from consilia.data.encode import MISSING, category_codes
from consilia.data.sources.faults import Faults

# What exports write for "no value". "nan" is not among them: it is a number gone wrong more often than a
# blank.
BLANKS: Final = frozenset({"", "NA", "N/A", "NULL", "null", "?"})
_NOBODY: Final = frozenset({blank.casefold() for blank in BLANKS} | {"nan", "none"})
MOST_CLASSES: Final = 1000
LONGEST_NAME: Final = 256
# A site's name becomes part of a file's name: no slash, no leading dot.
SITE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,63}")


class Column(Protocol):
    """Takes the cells of one column, chunk by chunk."""

    def add(self, cells: Sequence[str], lines: Sequence[int]) -> None:
        """Take the next cells, as they stand in the file, with the line of each."""


class NumericColumn:
    """Numbers; a blank is missing (NaN)."""

    def __init__(self, name: str, faults: Faults) -> None:
        self._name, self._faults = name, faults
        self._values = array("d")

    def add(self, cells: Sequence[str], lines: Sequence[int]) -> None:
        """Take the next cells."""
        if (numbers := _all_numbers(cells)) is None:
            numbers = [self._number(cell.strip(), line) for cell, line in zip(cells, lines, strict=True)]
        self._values.extend(numbers)

    def _number(self, cell: str, line: int) -> float:
        if cell in BLANKS:
            return math.nan
        try:
            # Python's float also reads "1_000" and other scripts' digits, which no export means as a number.
            value = float(cell) if cell.isascii() and "_" not in cell else None
        except ValueError:
            value = None
        if value is None:
            hint = 'Decimal point ".", no thousands separator, no unit'
            self._faults.at(line, f"numbers in column {self._name!r}", "text", hint)
            return math.nan
        if not math.isfinite(value):
            hint = "Leave the cell empty if the value is missing"
            self._faults.at(line, f"finite numbers in column {self._name!r}", "NaN or infinity", hint)
        return value

    def values(self) -> NDArray[np.float64]:
        """Return the numbers, shape (n,)."""
        return np.frombuffer(self._values, dtype=np.float64) if self._values else np.empty(0)


def _all_numbers(cells: Sequence[str]) -> list[float] | None:
    # Most chunks hold finite numbers only: one pass without a Python call a cell. None: look at each cell.
    text = "".join(cells)
    if not text.isascii() or "_" in text:
        return None
    try:
        numbers = list(map(float, cells))
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


class CategoryColumn:
    """Values of a public list; anything else is missing."""

    def __init__(self, values: Sequence[str]) -> None:
        self._positions: Mapping[str, int] = {value: k for k, value in enumerate(values)}
        self._codes = array("q")

    def add(self, cells: Sequence[str], lines: Sequence[int]) -> None:
        """Take the next cells."""
        self._codes.extend(category_codes([cell.strip() for cell in cells], self._positions))

    def codes(self) -> NDArray[np.int64]:
        """Return each cell's position on the list, or MISSING; shape (n,)."""
        return np.frombuffer(self._codes, dtype=np.int64) if self._codes else np.empty(0, dtype=np.int64)


class LabelColumn:
    """The column to predict; every cell must be a class."""

    def __init__(self, name: str, classes: Sequence[str] | None, faults: Faults) -> None:
        self._name, self._faults = name, faults
        self._fixed = classes is not None
        self._positions = {value: k for k, value in enumerate(classes or ())}
        self._codes = array("q")

    def add(self, cells: Sequence[str], lines: Sequence[int]) -> None:
        """Take the next cells."""
        self._codes.extend(self._code(cell.strip(), line) for cell, line in zip(cells, lines, strict=True))

    def _code(self, cell: str, line: int) -> int:
        code = self._positions.get(cell, MISSING)
        if code != MISSING:
            return code
        if not self._fixed and cell not in BLANKS and len(self._positions) <= MOST_CLASSES:
            return self._positions.setdefault(cell, len(self._positions))
        needs, got = f"a class in every cell of column {self._name!r}", "a blank"
        if cell not in BLANKS:
            got = "a value that is no class" if self._fixed else f"more than {MOST_CLASSES} different values"
        self._faults.at(line, needs, got, "Name all classes in data.classes; leave out unlabelled rows")
        return MISSING

    def labels(self) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Return the labels, shape (n,), and the classes in order (sorted where they were found in the file)."""
        codes = np.frombuffer(self._codes, dtype=np.int64) if self._codes else np.empty(0, dtype=np.int64)
        names = list(self._positions)
        if self._fixed or not names:
            return codes.copy(), tuple(names)
        order = sorted(range(len(names)), key=names.__getitem__)
        rank = np.empty(len(names), dtype=np.int64)
        rank[order] = np.arange(len(names))
        return np.where(codes == MISSING, MISSING, rank[codes]), tuple(names[k] for k in order)


class NameColumn:
    """Names of rows, patients or sites: never blank, never long."""

    def __init__(self, name: str, role: str, faults: Faults) -> None:
        self._name, self._role, self._faults = name, role, faults
        self._names: list[str] = []

    def add(self, cells: Sequence[str], lines: Sequence[int]) -> None:
        """Take the next cells."""
        for cell, line in zip((cell.strip() for cell in cells), lines, strict=True):
            needs = f"{self._role} of 1 to {LONGEST_NAME} characters in every cell of column {self._name!r}"
            if not cell:
                self._faults.at(line, needs, "a blank", "Fill it in, or leave the row out")
            elif len(cell) > LONGEST_NAME:
                self._faults.at(line, needs, "a longer one", "Is this the right column?")
                cell = cell[:LONGEST_NAME]
            self.check(cell, line)
            self._names.append(cell)

    def check(self, cell: str, line: int) -> None:
        """Look for faults of a special kind of name; none here."""

    def names(self) -> NDArray[np.str_]:
        """Return the names, shape (n,)."""
        return np.asarray(self._names, dtype=np.str_)


class IdColumn(NameColumn):
    """Ids of rows: each once."""

    def __init__(self, name: str, faults: Faults) -> None:
        super().__init__(name, "an id", faults)
        self._seen: set[str] = set()

    def check(self, cell: str, line: int) -> None:
        """Look for a repeated id."""
        if cell and cell in self._seen:
            needs = f"different ids in column {self._name!r}"
            hint = "Remove the duplicate rows, or name another id_column"
            self._faults.at(line, needs, "a repeated one", hint)
        self._seen.add(cell)


class PatientColumn(NameColumn):
    """Patients: each by a name of their own.

    Guarantees:
        A mark for "no value" is refused. As a name it would make one patient of all rows that lack one, and a claim for
        patients would then not hold for any of those people.
    """

    def __init__(self, name: str, faults: Faults) -> None:
        super().__init__(name, "a patient", faults)

    def check(self, cell: str, line: int) -> None:
        """Look for what exports write where there is no value."""
        if cell and cell.casefold() in _NOBODY:
            needs = f"a patient in every cell of column {self._name!r}"
            self._faults.at(line, needs, "a mark for no value", "Fill it in, or leave the row out")


class SiteColumn(NameColumn):
    """Names of sites: of the known ones, where these are told."""

    def __init__(self, name: str, known: tuple[str, ...] | None, faults: Faults) -> None:
        super().__init__(name, "a site", faults)
        self._known = None if known is None else frozenset(known)

    def check(self, cell: str, line: int) -> None:
        """Look for an unknown or unusable name."""
        if not cell:
            return
        if self._known is not None and cell not in self._known:
            needs, hint = f"known sites in column {self._name!r}", "Correct the name, or name the site in the plan"
            self._faults.at(line, needs, "an unknown one", hint)
        elif SITE_NAME.fullmatch(cell) is None:
            needs = f'sites named with A-Z, a-z, 0-9, blank and "_.-" in column {self._name!r}'
            self._faults.at(line, needs, "other characters, or more than 64", "Rename the site in the file")
