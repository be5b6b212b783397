"""CSV files: comma, UTF-8, a header line; read in one pass, with every fault told at once.

Messages hold column names of the plan, line numbers and kinds of fault, never the content of a cell. Memory:
about 8 bytes a used cell while reading, then the float32 table.
"""

import csv
import difflib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from consilia.data.encode import MISSING, fill_one_hot, scale_to_range
from consilia.data.sources.csv_columns import (
    CategoryColumn,
    Column,
    IdColumn,
    LabelColumn,
    NumericColumn,
    PatientColumn,
    SiteColumn,
)
from consilia.data.sources.csv_lines import Lines, as_text
from consilia.data.sources.csv_spec import CsvSpec
from consilia.data.sources.faults import Faults
from consilia.data.sources.opening import open_binary
from consilia.data.table import Table

__all__ = ["CsvSpec", "read_csv"]

_CHUNK: Final = 4096  # rows turned into columns at a time


def read_csv(path: Path, spec: CsvSpec) -> Table:
    """Read a CSV file (.csv, or .gz packed) into a table.

    A numeric column becomes one feature in [-1, 1], a category one 0/1 feature a value; with missing =
    "indicate" each is followed by an indicator, whether or not a value is missing: the width must be the same at every site.

    Raises:
        DataError: With every fault of the file.
    """
    path = Path(path)
    faults = Faults(f"data file {str(path)!r}")
    reading = _Reading(spec, faults)
    with open_binary(path, faults) as stream, as_text(stream) as text:
        reading.consume(Lines(text, faults))
    faults.raise_if_any()
    return reading.table(path.name)


class _Reading:
    """The columns of one file while it is read."""

    def __init__(self, spec: CsvSpec, faults: Faults) -> None:
        self._spec, self._faults = spec, faults
        self._numeric = {name: NumericColumn(name, faults) for name in spec.numeric}
        self._categories = {name: CategoryColumn(values) for name, values in spec.categories.items()}
        self._label = LabelColumn(spec.label, spec.classes, faults)
        self._ids = None if spec.id_column is None else IdColumn(spec.id_column, faults)
        self._patients = None
        if spec.patient_column is not None:
            self._patients = PatientColumn(spec.patient_column, faults)
        self._sites = None
        if spec.site_column is not None:
            self._sites = SiteColumn(spec.site_column, spec.known_sites, faults)
        self._rows = 0

    def consume(self, lines: Lines) -> None:
        """Read all rows; faults are recorded on the way."""
        reader = csv.reader(lines, strict=True)
        try:
            header = next((row for row in reader if row), None)
            if header is None:
                if not self._faults:
                    self._faults.add("a header line", "no line", "The first line names the columns")
                return
            if self._faults:  # the true header was unreadable: this is some other line
                return
            places = self._places(header)
            rows = self._whole_rows(reader, lines, len(header))
            while chunk := list(islice(rows, _CHUNK)):
                numbers = [line for line, _ in chunk]
                cells = list(zip(*(row for _, row in chunk), strict=True))
                for column, place in places:
                    column.add(cells[place], numbers)
                self._rows += len(chunk)
        except csv.Error as error:
            # The parser's own words name the fault and no content: a field above 131,072 characters, a stray
            # quote.
            hint = "Often a quotation mark that is never closed"
            self._faults.at(lines.number, "well-formed CSV", str(error), hint)
        if self._rows == 0 and not self._faults:
            self._faults.add("rows of data", "a header line only", "Export it again")

    def _places(self, header: list[str]) -> list[tuple[Column, int]]:
        names = [name.strip() for name in header]
        first: dict[str, int] = {}
        for place, name in enumerate(names):
            if name in first and (name or name in self._spec.columns_needed()):
                # By place, not by name: without a header line these would be a patient's values.
                got = f"the same name in columns {first[name] + 1} and {place + 1}"
                self._faults.add("different names in the header line", got, "Rename one of them")
            first.setdefault(name, place)
        for name in self._spec.columns_needed():
            if name not in first:
                self._faults.add(f"a column {name!r}", f"a header line of {len(names)} others", _hint(name, names))
        special = ((self._spec.id_column, self._ids), (self._spec.patient_column, self._patients))
        wanted: list[tuple[str | None, Column | None]] = [*self._numeric.items(), *self._categories.items()]
        wanted += [(self._spec.label, self._label), *special, (self._spec.site_column, self._sites)]
        return [(column, first[name]) for name, column in wanted if column is not None and name in first]

    def _whole_rows(self, reader: Iterator[list[str]], lines: Lines, width: int) -> Iterator[tuple[int, list[str]]]:
        for row in reader:
            if len(row) == width:
                yield lines.number, row
            elif row:  # a blank line is no row
                needs, got = f"{width} cells in every line", "more" if len(row) > width else "fewer"
                hint = "A value that holds a comma must stand in quotes"
                self._faults.at(lines.number, needs, got, hint)

    def table(self, name: str) -> Table:
        """Encode the columns.

        Raises:
            DataError: If too little is left.
        """
        missing: dict[str, NDArray[np.bool_]] = {}
        for column, reader in self._numeric.items():
            missing[column] = np.isnan(reader.values())
        for column, codes in self._categories.items():
            missing[column] = codes.codes() == MISSING
        keep = np.ones(self._rows, dtype=np.bool_)
        if self._spec.missing == "drop":
            keep = ~np.logical_or.reduce(list(missing.values()))
        labels, classes = self._label.labels()
        labels = labels[keep]
        if len(labels) == 0:
            hint = 'Set data.missing = "indicate", or leave out the column with most blanks'
            self._faults.add("rows without a missing value", f"none among {self._rows}", hint)
        elif len(np.unique(labels)) < 2:
            self._faults.add("rows of at least two classes", "one class", "There is nothing to tell apart")
        self._faults.raise_if_any()
        features, columns = self._features(keep, missing)
        ids = np.arange(1, self._rows + 1).astype(np.str_) if self._ids is None else self._ids.names()
        dropped = self._rows - len(labels)
        return Table(
            features=features,
            labels=labels,
            classes=classes,
            ids=ids[keep],
            sites=None if self._sites is None else self._sites.names()[keep],
            patients=None if self._patients is None else self._patients.names()[keep],
            official_test=None,
            name=name,
            columns=columns,
            notes=(f"{dropped} of {self._rows} rows have a missing value and are left out",) if dropped else (),
        )

    def _features(
        self, keep: NDArray[np.bool_], missing: dict[str, NDArray[np.bool_]]
    ) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        indicate = self._spec.missing == "indicate"
        names: list[str] = []
        for column in self._spec.numeric:
            names += [column, *([f"{column} missing"] if indicate else [])]
        for column, values in self._spec.categories.items():
            names += [f"{column}={value}" for value in values] + ([f"{column} missing"] if indicate else [])
        features = np.zeros((int(keep.sum()), len(names)), dtype=np.float32)
        at = 0
        for column, (low, high) in self._spec.numeric.items():
            features[:, at] = scale_to_range(self._numeric[column].values()[keep], low, high)
            at += 1
            if indicate:
                features[:, at] = missing[column][keep]
                at += 1
        for column, values in self._spec.categories.items():
            fill_one_hot(features[:, at : at + len(values)], self._categories[column].codes()[keep])
            at += len(values)
            if indicate:
                features[:, at] = missing[column][keep]
                at += 1
        return features, tuple(names)


def _hint(name: str, names: list[str]) -> str:
    # Only a name that resembles the wanted one is shown; anything else might be a patient's value (no header
    # line).
    lowered = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.75)
    if close:
        return f"Is it the column {lowered[close[0]]!r}?"
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        return "Cells must be separated by commas"
    return "The first line must name the columns"
