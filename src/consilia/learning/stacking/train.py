"""One site's stack: rows to disjoint sets, a private model on each, and one on their outputs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.learning.stacking.importance import measured_importance
from consilia.learning.stacking.predict import high_rows, low_margins, low_rows
from consilia.learning.stacking.shape import StackShape, Vector64
from consilia.learning.stacking.work import StackWork, shared_out

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Which of a site's rows train what: disjoint sets that together hold every row once.

    Attributes:
        low: Positions for the low level; one set a model where rows are split, else one set for all.
        high: Positions for the high level.
    """

    low: tuple[Index, ...]
    high: Index


def draw_rows(count: int, work: StackWork, rng: SecretRng) -> Rows:
    """Deal rows by coins of their own, so that no row's set depends on which other rows there are."""
    if not work.shape.high_size:
        return Rows((np.arange(count),), np.empty(0, np.int64))
    coins = rng.uniform(count)
    parts = len(work.shape.blocks) if work.shape.parts == "samples" else 1
    # The coins that fall above `high_fraction` are uniform there: their place says which part.
    part = np.floor((coins - work.high_fraction) / (1.0 - work.high_fraction) * parts).astype(np.int64)
    part = np.minimum(part, parts - 1)
    return Rows(tuple(np.flatnonzero(part == k) for k in range(parts)), np.flatnonzero(part < 0))


def train_stack(
    work: StackWork,
    features: NDArray[np.floating],
    positive: NDArray[np.bool_],
    rng: SecretRng,
    source: Vector64 | None = None,
) -> Vector64:
    """Return a site's private stack, shape (P,): the one answer that it gives.

    Args:
        work: What to train; public.
        features: Shape (n, width), n at most `work.rows`.
        positive: True for rows of the positive class, shape (n,).
        rng: Secret randomness.
        source: Another organisation's released stack, shape (P,), for hypothesis transfer (`work.pull`); without one
            `work.pull` has no effect.

    Raises:
        ProtocolError: If shapes do not fit, more rows came than registered, or a solver did not converge.

    Guarantees:
        As `StackWork` says. The source is public or another site's release: it costs this site's rows nothing.

    Source:
        Yao et al. (2019), Privacy-preserving stacking (PST-S, PST-F, PST-H); proof in docs/guarantees-stacking.md.
    """
    if source is None:
        work = work.with_(pull=0.0)  # nothing to be drawn to: a chain's first site trains as if it were alone
    shape = work.shape
    rows = draw_rows(len(features), work, rng.derive("rows"))
    low_sets = rows.low if len(rows.low) == len(shape.blocks) else rows.low * len(shape.blocks)
    shares = work.shares
    if work.measured:
        measured = measured_importance(
            shape, features[rows.low[0]], positive[rows.low[0]], epsilon=work.epsilon * work.measured,
            row_bound=work.row_bound, rng=rng.derive("importance"),
        )  # fmt: skip
        shares = shared_out(measured, 1.0 - work.measured)
    weights = np.zeros(shape.size)
    for k, (block, place, share, chosen) in enumerate(zip(shape.blocks, shape.places, shares, low_sets, strict=False)):
        weights[place] = work.mechanism(share).release(
            low_rows(features[chosen], block, work.row_bound), positive[chosen], rng.derive("low", k),
            None if source is None else source[place],
        )  # fmt: skip
    if shape.high_size:
        scores = high_rows(low_margins(shape, weights, features[rows.high], work.row_bound))
        centre = _high_centre(work, source)
        weights[shape.places[-1]] = work.high_mechanism().release(
            scores, positive[rows.high], rng.derive("high"), centre
        )
    return weights


def equal_votes(shape: StackShape) -> Vector64:
    """Return high-level weights, shape (K + 1,), that take every model's margin alike: their sum, or mean over samples."""
    count = len(shape.blocks)
    each = 2.0 * np.sqrt(count + 1.0) / (count if shape.parts == "samples" else 1)
    return np.append(np.full(count, each), 0.0)


def _high_centre(work: StackWork, source: Vector64 | None) -> Vector64:
    votes = equal_votes(work.shape)
    if source is None:
        return votes
    return np.asarray((votes + work.pull * source[work.shape.places[-1]]) / (1.0 + work.pull))
