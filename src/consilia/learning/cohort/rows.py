"""The batches of many sites as one padded tensor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consilia.learning.cohort.task import Task

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """One step's rows of the first s sites, each site's padded at the end to the longest.

    Attributes:
        features: Shape (s, b, f); padding is zero.
        labels: Shape (s, b), int64; padding is class 0.
        padding: True for rows that are padding, shape (s, b); None where none is.
        counts: Rows of each site, shape (s,).
    """

    features: Tensor
    labels: Tensor
    padding: Tensor | None
    counts: Index

    def prefix(self, sites: int) -> "Batch":
        """Return the batch of the first sites."""
        padding = None if self.padding is None else self.padding[:sites]
        return Batch(self.features[:sites], self.labels[:sites], padding, self.counts[:sites])


class Rows:
    """The rows of a few sites, one after the other, behind a row of zeros that padding points to.

    Args:
        tasks: The sites; each has features of the same number of elements.
        width: That number.
    """

    def __init__(self, tasks: Sequence[Task], width: int) -> None:
        some = tasks[0]
        self._features = torch.cat(
            [some.features.new_zeros(1, width), *(task.features.reshape(-1, width) for task in tasks)]
        )
        self._labels = torch.cat([some.labels.new_zeros(1), *(task.labels for task in tasks)])
        self._counts = np.array([len(task.labels) for task in tasks])
        self._offsets = 1 + np.cumsum(self._counts) - self._counts

    def full(self) -> Batch:
        """Return all rows of all sites."""
        return self.batch([np.arange(count) for count in self._counts])[0]

    def batch(self, drawn: Sequence[Index]) -> tuple[Batch, list[int]]:
        """Return the rows that the first sites drew, and the sites whose draw named a row that is not theirs.

        Args:
            drawn: For each of them, positions among its own rows. A draw that is not sound gives no rows.
        """
        counts = np.fromiter(map(len, drawn), np.int64, len(drawn))
        sites = np.repeat(np.arange(len(drawn)), counts)
        rows = np.concatenate(drawn)
        outside = (rows < 0) | (rows >= self._counts[sites])
        if outside.any():
            foreign: list[int] = np.unique(sites[outside]).tolist()
            batch, _ = self.batch([_NONE if site in foreign else rows for site, rows in enumerate(drawn)])
            return batch, foreign
        real = np.arange(max(1, counts.max())) < counts[:, None]
        places = np.zeros(real.shape, np.int64)
        places[real] = rows + self._offsets[sites]
        device = self._features.device
        index = torch.from_numpy(places).to(device)
        features = self._features.index_select(0, index.view(-1)).view(*index.shape, -1)
        labels = self._labels.index_select(0, index.view(-1)).view(index.shape)
        padding = None if real.all() else torch.from_numpy(~real).to(device)
        return Batch(features, labels, padding, counts), []


_NONE: Index = np.empty(0, np.int64)
