"""One noisy gradient: clip each example, add up, add noise, divide by a public number."""

from collections.abc import Callable

import torch
from torch import Tensor

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.learning.flat import FlatModel
from consilia.learning.layers import forbidden
from consilia.learning.persample.choose import choose
from consilia.learning.persample.engine import PerExample
from consilia.learning.work import LocalWork

_ROWS_AT_ONCE = 2048  # sums of more rows are made of parts, added in double precision


def private_gradient(
    model: FlatModel, work: LocalWork, rank: int, secret: SecretRng
) -> Callable[[Tensor, Tensor], None]:
    """Return a function of a batch that writes its noisy mean gradient to `model.grad`.

    That is (sum of clipped gradients + noise) / expected batch.

    Args:
        model: The model, in training mode.
        work: Names the clip norm C, the noise multiplier z and the public expected batch.
        rank: Number of dimensions of a batch of features.
        secret: Where the noise comes from.

    Raises:
        PlanError: If no clip norm is given, or a layer is of a kind that mixes examples or draws at random. What only a
            trial can tell, `probe`, is asked once for a run, where the model is built.

    Guarantees:
        The sum has l2 sensitivity C to adding or removing one record (2 C to replacing one) over all
        trainable tensors, those kept at the site included; the noise has standard deviation z C on each
        coordinate, so the release is a Gaussian mechanism with multiplier z (z / 2 for replacing). An empty
        batch is released as noise like any other, and the divisor does not depend on the rows.

    Source:
        Abadi et al. (2016), Deep learning with differential privacy, algorithm 1.
    """
    if work.clip_norm is None:
        raise PlanError.of("a private gradient", needs="a clip norm", got="none",
                           hint="Set privacy.clip_norm: noise without a bound protects nobody")  # fmt: skip
    faults = forbidden(model.module, "record")
    if faults:
        raise PlanError(faults)
    clip_norm, deviation = work.clip_norm, work.noise_multiplier * work.clip_norm
    engine = choose(model, rank)

    def gradient(features: Tensor, labels: Tensor) -> None:
        total = _clipped_total(engine, features, labels, clip_norm)
        if deviation > 0:
            # Added and rounded once, in double precision, where the smallest bits of the sum meet those of
            # the noise.
            noise = torch.from_numpy(secret.normal(len(total))).mul_(deviation)
            total = noise.add_(total.cpu())
        model.grad.copy_(total.div_(work.expected_batch))

    return gradient


def _clipped_total(engine: PerExample, features: Tensor, labels: Tensor, clip_norm: float) -> Tensor:
    """Return the sum of clipped gradients, shape (p,): of many rows in double precision, else the model's gradient."""
    if len(labels) <= _ROWS_AT_ONCE:
        return engine.clipped_sum(features, labels, clip_norm)
    parts = zip(torch.split(features, _ROWS_AT_ONCE), torch.split(labels, _ROWS_AT_ONCE), strict=True)
    sums = (engine.clipped_sum(x, y, clip_norm).cpu().double() for x, y in parts)
    return sum(sums, start=torch.zeros(1, dtype=torch.float64))
