"""Scores that a run's summary does not hold: the area under the ROC curve of its result on the held-out rows."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

import consilia
from benchmarks.study import Json
from consilia.core.randomness import SharedSeed
from consilia.learning.flat import FlatModel
from consilia.learning.models import build
from consilia.plan.schema import Plan
from consilia.rounds.rows import site_rows


def auc(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float:
    """Return the chance that a positive row scores above a negative one, ties counted half.

    Args:
        scores: Shape (n,); larger means more likely positive.
        positive: Shape (n,), with both kinds in it.

    Source:
        Hanley and McNeil (1982), The meaning and use of the area under a ROC curve: the Mann-Whitney statistic.
    """
    ranks, count = rankdata(scores), int(positive.sum())
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(positive) - count)))


def two_class(plan: Plan, result: consilia.RunResult) -> Json:
    """Return {"auc": ...} of a run of two classes over all sites' held-out rows together; class 1 is the positive one."""
    # Of the training rows one a site will do: features of the others would be computed for nothing.
    held_out = plan.model_copy(update={"data": plan.data.model_copy(update={"train_rows": plan.sites.count or 1})})
    parts, config = [rows.test for rows in site_rows(held_out, Path()).values()], plan.model
    module = build(
        config.name, input_shape=parts[0].input_shape, classes=len(parts[0].classes), hidden=tuple(config.hidden),
        activation=config.activation, seed=SharedSeed.of(plan.run.seed).derive("model").integer(),
    )  # fmt: skip
    FlatModel(module).set(result.model)
    module.eval()
    with torch.no_grad():
        logits = np.concatenate([module(torch.from_numpy(part.features)).numpy() for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    return {"auc": auc(logits[:, 1] - logits[:, 0], labels == 1)}
