"""Counts and losses, in one pass or in many."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from consilia.learning import gradient
from consilia.learning.evaluate import evaluate
from consilia.learning.flat import FlatModel
from consilia.learning.models import build


@pytest.mark.parametrize("elements", [8, 1 << 22])
def test_evaluation_counts_every_row_once(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "_ELEMENTS_AT_ONCE", elements)
    module = build("mlp", input_shape=(4,), classes=3, seed=0)
    features, labels = torch.randn(11, 4), torch.arange(11) % 3
    logits = module(features)
    correct, loss, count = evaluate(FlatModel(module), features, labels)
    assert correct == int((logits.argmax(1) == labels).sum())
    assert loss == pytest.approx(F.cross_entropy(logits, labels, reduction="sum").item(), rel=1e-5)
    assert count == 11


def test_no_rows() -> None:
    model = FlatModel(build("logistic", input_shape=(4,), classes=3, seed=0))
    assert evaluate(model, torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)) == (0, 0.0, 0)


def test_evaluation_leaves_running_statistics_alone() -> None:
    model = FlatModel(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)))
    before = model.get()
    evaluate(model, torch.randn(9, 4), torch.zeros(9, dtype=torch.int64))
    assert (model.get() == before).all()
