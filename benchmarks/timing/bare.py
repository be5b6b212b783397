"""The bare PyTorch loop: the same sites, batches and sums as a run, and nothing else.

What it does without: messages, journal, records, checks. It is given each round's sites and each site's order of rows, so
it ends in the same model as the run beside it: that is checked, not assumed.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from benchmarks.timing.workloads import BATCH, RATE


class Bare:
    """Federated averaging in a dozen lines.

    Args:
        model: Started where the run starts.
        rows: Per site, features (n, ...) and labels (n,).
    """

    def __init__(self, model: nn.Module, rows: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        self.model = model
        self.rows = rows
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=RATE)
        self.loss = nn.CrossEntropyLoss()
        self.globals = [p.detach().clone() for p in self.parameters]

    def round(self, orders: Sequence[tuple[str, Tensor]]) -> None:
        """Train one round; `orders` names the sites and the order of each one's rows."""
        moved = [torch.zeros_like(p) for p in self.globals]
        for site, order in orders:
            features, labels = self.rows[site]
            with torch.no_grad():
                for p, start in zip(self.parameters, self.globals, strict=True):
                    p.copy_(start)
            for i in range(0, len(order), BATCH):
                batch = order[i : i + BATCH]
                self.optimizer.zero_grad()
                self.loss(self.model(features[batch]), labels[batch]).backward()
                self.optimizer.step()
            with torch.no_grad():
                for total, p, start in zip(moved, self.parameters, self.globals, strict=True):
                    total.add_(p - start)
        for start, total in zip(self.globals, moved, strict=True):
            start.add_(total, alpha=1 / len(orders))

    def vector(self) -> Tensor:
        """Return the global model, shape (d,)."""
        return torch.cat([p.flatten() for p in self.globals])
