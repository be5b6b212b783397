"""The same model trained in one place without privacy: a bare PyTorch loop over rows that sites hold apart."""

from collections.abc import Sequence

import torch
from torch import nn

from consilia.core.randomness import SharedSeed
from consilia.learning.models import build
from consilia.plan.schema import Plan
from consilia.rounds.rows import SiteRows


def train(
    plan: Plan, rows: Sequence[SiteRows], *, epochs: int, batch: int | None, rate: float, momentum: float
) -> nn.Module:
    """Train the plan's model on the training rows of `rows` together.

    Args:
        plan: Names the model and seeds its initial weights.
        rows: The sites whose rows are pooled.
        epochs: Passes over them.
        batch: Rows a step; None: all of them.
        rate: Step size.
        momentum: Of SGD.

    Returns:
        The model of the mean of the second half's weights where steps are full, else the last one: as the
        federated plans beside it keep theirs.
    """
    one, config = rows[0].train, plan.model
    model = build(
        config.name, input_shape=one.input_shape, classes=len(one.classes), hidden=tuple(config.hidden),
        activation=config.activation, seed=SharedSeed.of(plan.run.seed).derive("model").integer(),
    )  # fmt: skip
    features = torch.cat([torch.from_numpy(part.train.features) for part in rows])
    labels = torch.cat([torch.from_numpy(part.train.labels) for part in rows])
    order = torch.Generator().manual_seed(plan.run.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    tail = [torch.zeros_like(weight) for weight in model.parameters()]
    for epoch in range(epochs):
        shuffled = torch.randperm(len(labels), generator=order)
        for step in [shuffled] if batch is None else torch.split(shuffled, batch):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(features[step]), labels[step]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if epoch >= epochs // 2:
            for total, weight in zip(tail, model.parameters(), strict=True):
                total += weight.detach()
    if batch is None:
        with torch.no_grad():
            for total, weight in zip(tail, model.parameters(), strict=True):
                weight.copy_(total / (epochs - epochs // 2))
    return model


def accuracies(model: nn.Module, rows: Sequence[SiteRows]) -> tuple[float, list[float]]:
    """Return the accuracy over all held-out rows, and that of each site."""
    correct, each, count = 0, [], 0
    with torch.no_grad():
        model.eval()
        for part in rows:
            guess = model(torch.from_numpy(part.test.features)).argmax(1)
            right = int((guess == torch.from_numpy(part.test.labels)).sum())
            each.append(right / len(part.test))
            correct, count = correct + right, count + len(part.test)
    return correct / count, each
