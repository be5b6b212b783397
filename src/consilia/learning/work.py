"""What a site is asked to compute in one round, as plain numbers."""

from dataclasses import dataclass
from typing import Literal

from consilia.core.errors import PlanError, Problem


@dataclass(frozen=True)
class LocalWork:
    """One round's work at one site.

    Attributes:
        algorithm: fedavg returns how far the model moved; fedsgd returns minus one gradient.
        batch: How rows come to a step; "full" uses all rows and asks nobody.
        batch_size: fixed: rows a batch.
        sampling_rate: poisson: q, public.
        batch_cap: poisson: largest batch.
        expected_batch: Public number that a sum of clipped gradients is divided by; never the realised batch.
        steps: fedavg: optimizer steps.
        optimizer: sgd, adam, or dp-adam (adam without the noise's share of the second moment), started afresh each round.
        learning_rate: The local rate, eta.
        momentum: Of sgd.
        weight_decay: L2 penalty added to the gradient (after noise: it reads no data).
        proximal_mu: FedProx: weight of mu/2 |y - x|^2 on the shared layers.
        clip_norm: C, bound on each example's gradient (l2); None: no record-level privacy.
        noise_multiplier: z, what each step is charged for; without adaptive clipping the noise on a clipped sum has
            standard deviation z C. 0: none here.
        clipping: How each unit's gradient is bounded by C; adaptive: C follows a quantile of the units' norms.
        target_quantile: adaptive: share of units whose norm should lie within C.
        clip_learning_rate: adaptive: how fast C follows, on a log scale.
        count_noise: adaptive: standard deviation of the noise on the count of units within C, in units; its cost is
            part of z.
        augment: How views of an image are drawn; a unit's gradient is the mean over its views, clipped after.
        views: Views of each row and step.
        trained: Which layers move; the others stay as they are, and no noise is drawn for them.
    """

    algorithm: Literal["fedavg", "fedsgd"] = "fedavg"
    batch: Literal["full", "fixed", "poisson"] = "full"
    batch_size: int | None = None
    sampling_rate: float | None = None
    batch_cap: int | None = None
    expected_batch: float = 0.0
    steps: int = 1
    optimizer: Literal["sgd", "adam", "dp-adam"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal_mu: float = 0.0
    clip_norm: float | None = None
    noise_multiplier: float = 0.0
    clipping: Literal["flat", "per-layer", "automatic", "adaptive"] = "flat"
    target_quantile: float = 0.5
    clip_learning_rate: float = 0.2
    count_noise: float = 0.0
    augment: Literal["none", "shift", "shift-flip"] = "none"
    views: int = 1
    trained: Literal["all", "head", "backbone"] = "all"

    def __post_init__(self) -> None:
        """Refuse numbers under which a claim would be void.

        Raises:
            PlanError: With every fault.
        """
        clips, most = self.clip_norm is not None, float("inf")
        faults = [
            Problem(who, needs, str(got), hint)
            for sound, who, needs, got, hint in (
                (not clips or 0 < (self.clip_norm or 0) < most, "local work", "a positive clip norm", self.clip_norm,
                 "Set privacy.clip_norm; begin with 1.0"),
                (not clips or 0 < self.expected_batch < most, "local work with clipping",
                 "a positive public expected batch", self.expected_batch, "It is q x count, or the batch size"),
                (0 <= self.noise_multiplier < most, "local work", "a noise multiplier of at least 0",
                 self.noise_multiplier, "Set privacy.noise_multiplier, or privacy.epsilon and let the noise follow"),
                (clips or not self.noise_multiplier > 0, "local work with noise", "a clip norm", None,
                 "Set privacy.clip_norm: noise without a bound protects nobody"),
                (self.steps >= 1, "local work", "at least one step", self.steps,
                 "Set training.local_steps or training.local_epochs to 1 or more"),
                (self.clipping != "adaptive" or self.count_noise == self.noise_multiplier == 0 or (
                    2 * self.count_noise > self.noise_multiplier > 0), "adaptive clipping",
                 "a count whose noise costs less than the whole step: count_noise above z / 2",
                 f"{self.count_noise} at z = {self.noise_multiplier}", "Raise privacy.count_noise"),
                (self.algorithm != "fedsgd" or self.steps == 1, "fedsgd", "one step a round", self.steps,
                 'Set training.algorithm = "fedavg" for more'),
            )
            if not sound
        ]  # fmt: skip
        if faults:
            raise PlanError(faults)
