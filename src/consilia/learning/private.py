"""One noisy gradient: clip each unit, add up, add noise, divide by a public number."""

from collections.abc import Sequence
from math import exp, sqrt

import torch
from torch import Tensor

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.learning.augment import views
from consilia.learning.flat import FlatModel
from consilia.learning.layers import forbidden
from consilia.learning.persample.choose import choose
from consilia.learning.persample.clipping import Clipping
from consilia.learning.persample.engine import Clipped
from consilia.learning.persample.units import Units, split
from consilia.learning.work import LocalWork

_ROWS_AT_ONCE = 2048  # sums of more rows are made of parts, added in double precision
_SMALLEST, _LARGEST = 1e-9, 1e9  # where an adaptive bound stops: with nothing in its batches it would leave the numbers
_MOST_POWER = 100.0  # beyond, a step leads past the largest bound from any other


def private_gradient(
    model: FlatModel, work: LocalWork, rank: int, secret: SecretRng, bound: float | None = None
) -> "PrivateGradient":
    """Return a function of a batch that writes its noisy mean gradient to `model.grad`.

    That is (sum of clipped gradients + noise) / expected batch.

    Args:
        model: The model, in training mode.
        work: Names the clip norm C and how it is applied, the noise multiplier z, the views and the public expected batch.
        rank: Number of dimensions of a batch of features.
        secret: Where noise and views come from.
        bound: adaptive: C of the first step, as an earlier round left it; None: work.clip_norm.

    Raises:
        PlanError: If no clip norm is given, or a layer is of a kind that mixes examples or draws at random. What only a
            trial can tell, `probe`, is asked once for a run, where the model is built.
    """
    if work.clip_norm is None:
        raise PlanError.of("a private gradient", needs="a clip norm", got="none",
                           hint="Set privacy.clip_norm: noise without a bound protects nobody")  # fmt: skip
    faults = forbidden(model.module, "record")
    if faults:
        raise PlanError(faults)
    return PrivateGradient(model, work, rank, secret, work.clip_norm if bound is None else bound)


class PrivateGradient:
    """Writes a batch's noisy mean gradient to `model.grad`, step after step.

    Attributes:
        bound: C of the next step: the clip norm, or what adaptive clipping has made of it out of noised counts.
        deviation: Standard deviation of the noise on each coordinate of the last gradient; 0 before the first.

    Guarantees:
        The sum has l2 sensitivity C to adding or removing one unit (2 C to replacing one) over all
        trainable tensors, those kept at the site included; the noise has standard deviation z C on each
        coordinate, so the release is a Gaussian mechanism with multiplier z (z / 2 for replacing). An empty
        batch is released as noise like any other, and the divisor does not depend on the rows.
        Adaptive: what is released is the pair of sum / C_t and of the sum over units of (b_i - 1/2), b_i = 1 where the norm is
        at most C_t. One unit moves them by at most 1 and 1/2; with noise z_sum and `count_noise` the pair is one Gaussian
        mechanism of multiplier (z_sum^-2 + (2 count_noise)^-2)^-1/2, which is z. C_t+1 follows from the noised count.

    Source:
        Abadi et al. (2016), Deep learning with differential privacy, algorithm 1; Andrew et al. (2021), Differentially private
        learning with adaptive clipping, algorithm 1 and theorem 1.
    """

    def __init__(self, model: FlatModel, work: LocalWork, rank: int, secret: SecretRng, bound: float) -> None:
        self.bound, self.deviation = bound, 0.0
        self._model, self._work, self._secret = model, work, secret
        self._engine = choose(model, rank, timed=not secret.reproducible)
        self._noise = _noise_on_sum(work)

    def __call__(self, features: Tensor, labels: Tensor, units: Units | None = None) -> None:
        """Write (sum of clipped gradients + noise) / expected batch to `model.grad`.

        Args:
            features: Shape (b, *input); b may be 0.
            labels: Shape (b,), int64.
            units: Which rows are protected together; None: each row by itself.
        """
        work = self._work
        kind = "flat" if work.clipping == "adaptive" else work.clipping
        self.deviation = self._noise * self.bound / work.expected_batch
        total, parts = self._clipped_total(features, labels, units, Clipping(kind, self.bound))
        if self._noise > 0:
            # Added and rounded once, in double precision, where the smallest bits of the sum meet those of
            # the noise.
            noise = torch.from_numpy(self._secret.normal(len(total))).mul_(self._noise * self.bound)
            total = noise.add_(total.cpu())
        self._model.grad.copy_(total.div_(work.expected_batch))
        if work.clipping == "adaptive":
            self.bound = self._next_bound(parts)

    def _clipped_total(
        self, features: Tensor, labels: Tensor, units: Units | None, clipping: Clipping
    ) -> tuple[Tensor, Sequence[Clipped]]:
        """Return the sum of clipped gradients, shape (p,): of many rows in double precision, else the model's gradient."""
        chunks = list(split(len(labels), units, max(1, _ROWS_AT_ONCE // self._work.views)))
        if len(chunks) <= 1:
            clipped = self._clipped(features, labels, clipping, units)
            return clipped.total, [clipped]
        total, parts = torch.zeros(1, dtype=torch.float64), []
        for rows, some in chunks:
            parts.append(self._clipped(features[rows], labels[rows], clipping, some))
            total = total + parts[-1].total.cpu().double()
        return total, parts

    def _clipped(self, features: Tensor, labels: Tensor, clipping: Clipping, units: Units | None) -> Clipped:
        work = self._work
        if work.augment != "none":
            features = views(features, work.views, work.augment, self._secret)
            if work.views > 1:
                units = (units or Units.single(len(labels), labels.device)).repeated(work.views)
                labels = labels.repeat_interleave(work.views)
        return self._engine.clipped_sum(features, labels, clipping, units)

    def _next_bound(self, parts: Sequence[Clipped]) -> float:
        work = self._work
        # A unit that is not finite adds nothing to the sum, and no half to the count.
        centred = sum(part.within - sum(map(len, part.norms)) / 2 for part in parts)
        if work.count_noise > 0:
            centred += work.count_noise * float(self._secret.normal(1)[0])
        share = centred / work.expected_batch + 0.5
        power = -work.clip_learning_rate * (share - work.target_quantile)
        return min(max(self.bound * exp(min(power, _MOST_POWER)), _SMALLEST), _LARGEST)


def _noise_on_sum(work: LocalWork) -> float:
    """Return the multiplier of the sum's noise: z, or what is left of it once the count's noise is paid for."""
    if work.clipping != "adaptive" or work.noise_multiplier == 0:
        return work.noise_multiplier
    return 1 / sqrt(work.noise_multiplier**-2 - (2 * work.count_noise) ** -2)
