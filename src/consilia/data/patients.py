"""Rows by patient: what belongs together where the patient is the unit of privacy."""

from dataclasses import dataclass

import numpy as np

from consilia.core.errors import DataError
from consilia.data.table import Index, Table


@dataclass(frozen=True, eq=False)
class Patients:
    """Whose row is whose, with each patient's rows side by side.

    Attributes:
        order: Positions of the table's rows, sorted by patient, shape (n,); rows of one patient keep their order.
        number: The patient of each row in that order, 0 .. count - 1, shape (n,), non-decreasing.
        starts: Where each patient's rows begin in that order, and n at the end, shape (count + 1,).
    """

    order: Index
    number: Index
    starts: Index

    @classmethod
    def of(cls, table: Table) -> "Patients":
        """Return the patients of a table.

        Raises:
            DataError: If the table names none.
        """
        if table.patients is None:
            raise DataError.of(f"table {table.name!r}", needs="the patient of each row", got="none",
                               hint="Name the column in data.patient_column")  # fmt: skip
        _, number = np.unique(table.patients, return_inverse=True)
        order = np.argsort(number, kind="stable")
        sorted_numbers = number[order].astype(np.int64)
        starts = np.searchsorted(sorted_numbers, np.arange(sorted_numbers[-1] + 2 if len(order) else 1))
        return cls(order.astype(np.int64), sorted_numbers, starts.astype(np.int64))

    @property
    def count(self) -> int:
        """How many patients there are."""
        return len(self.starts) - 1

    def rows(self, chosen: Index) -> Index:
        """Return the rows, in the sorted order, of these patients; those of one patient side by side."""
        sizes = self.starts[chosen + 1] - self.starts[chosen]
        begins = np.repeat(self.starts[chosen] - np.concatenate([[0], np.cumsum(sizes)[:-1]])[: len(sizes)], sizes)
        found: Index = (begins + np.arange(int(sizes.sum()))).astype(np.int64)
        return found
