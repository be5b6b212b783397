"""One noisy gradient: clip each example, add up, add noise, divide by a public number."""

from collections.abc import Callable

import torch
from torch import Tensor

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.learning.flat import FlatModel
from consilia.learning.models import problems
from consilia.learning.persample.choose import choose
from consilia.learning.work import LocalWork


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
        PlanError: If a layer of the model mixes examples.

    Guarantees:
        The sum has l2 sensitivity C to adding or removing one record (2 C to replacing one) over all
        trainable tensors, those kept at the site included; the noise has standard deviation z C on each
        coordinate, so the release is a Gaussian mechanism with multiplier z (z / 2 for replacing). An empty
        batch is released as noise like any other, and the divisor does not depend on the rows.

    Source:
        Abadi et al. (2016), Deep learning with differential privacy, algorithm 1.
    """
    if work.clip_norm is None:
        raise ValueError("private_gradient needs a clip norm")
    faults = problems(model.module, per_example=True)
    if faults:
        raise PlanError(faults)
    clip_norm, deviation = work.clip_norm, work.noise_multiplier * work.clip_norm
    engine = choose(model, rank)

    def gradient(features: Tensor, labels: Tensor) -> None:
        if len(labels):
            engine.clipped_sum(features, labels, clip_norm)
        else:
            model.grad.zero_()
        if deviation > 0:
            # Added and rounded once, in double precision, where the smallest bits of the sum meet those of
            # the noise.
            total = torch.from_numpy(secret.normal(len(model.grad))).mul_(deviation)
            total += model.grad.cpu()
            model.grad.copy_(total.div_(work.expected_batch))
        else:
            model.grad.div_(work.expected_batch)

    return gradient
