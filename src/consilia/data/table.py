"""The one form in which rows are used: numbers, labels, and who each row belongs to."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import DataError, Problem

Index = NDArray[np.int64]
Text = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows ready for a model.

    Attributes:
        features: float32, shape (n, *input_shape).
        labels: int64, shape (n,); positions in `classes`.
        classes: What the labels stand for, in order.
        ids: One unique text a row, shape (n,).
        sites: The site of each row, shape (n,), where the source names one.
        patients: The patient of each row, shape (n,), where the source names one.
        official_test: True for the rows that the source itself sets aside for testing, shape (n,).
        name: What the table is called in messages and records.
        columns: Names of the features of a flat table; empty for images.
        notes: What the reader decided on the way, one sentence each.
        origin: Fingerprint of the rows that computed features stand for; None for rows as their source gives them.

    Raises:
        DataError: If the parts do not belong together (number of rows, types).
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    ids: Text
    sites: Text | None
    patients: Text | None
    official_test: NDArray[np.bool_] | None
    name: str
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    origin: str | None = None

    def __post_init__(self) -> None:
        problems = list(self._misfits())
        if problems:
            raise DataError(problems)

    def _misfits(self) -> Iterator[Problem]:
        who = f"table {self.name!r}"
        if self.features.dtype != np.float32 or self.features.ndim < 2:
            got = f"{self.features.dtype} of {self.features.ndim} dimensions"
            yield Problem(who, "features as float32 of shape (rows, ...)", got, "Convert them first")
        if self.labels.dtype != np.int64 or self.labels.ndim != 1:
            got = f"{self.labels.dtype} of {self.labels.ndim} dimensions"
            yield Problem(who, "labels as int64 of shape (rows,)", got, "Convert them first")
        rows = self.features.shape[0] if self.features.ndim else 0
        for part in ("labels", "ids", "sites", "patients", "official_test"):
            values = getattr(self, part)
            if values is not None and values.shape[:1] != (rows,):
                yield Problem(who, f"one entry of {part} a row ({rows})", f"shape {values.shape}", "Pass equal lengths")
        width = int(np.prod(self.features.shape[1:]))
        if self.columns and len(self.columns) != width:
            yield Problem(who, f"a name for each of {width} columns", f"{len(self.columns)}", "Name them all")

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one row's features."""
        return tuple(int(size) for size in self.features.shape[1:])

    def take(self, index: Index) -> "Table":
        """Return the rows at these positions, in this order, as a copy; other rows, so without this table's origin."""
        return replace(
            self,
            origin=None,
            features=self.features[index],
            labels=self.labels[index],
            ids=self.ids[index],
            sites=None if self.sites is None else self.sites[index],
            patients=None if self.patients is None else self.patients[index],
            official_test=None if self.official_test is None else self.official_test[index],
        )

    def copy(self) -> "Table":
        """Return a table whose arrays may be written to without touching this one's."""
        return replace(self.take(np.arange(len(self))), origin=self.origin)

    def fingerprint(self) -> str:
        """Return a SHA-256, in hex, over all rows and their order; the name and the notes do not count.

        A ledger records it beside each entry. It is computed from patients' rows: it stays at the site. Computed
        features answer for the rows they were computed from, which are the same on every machine.
        """
        if self.origin is not None:
            return self.origin
        state = hashlib.sha256()
        for array in (self.features, self.labels, self.official_test):
            if array is None:
                state.update(canonical_bytes(None))
                continue
            # Little-endian whatever the machine, so that two machines agree on the same rows.
            plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
            state.update(canonical_bytes([plain.dtype.str, *map(int, plain.shape)]))
            state.update(plain.data)
        for texts in (np.asarray(self.classes, dtype=np.str_), self.ids, self.sites, self.patients):
            state.update(canonical_bytes(None if texts is None else texts.tolist()))
        return state.hexdigest()
