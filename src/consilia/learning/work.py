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
        optimizer: sgd or adam, started afresh each round.
        learning_rate: The local rate, eta.
        momentum: Of sgd.
        weight_decay: L2 penalty added to the gradient (after noise: it reads no data).
        proximal_mu: FedProx: weight of mu/2 |y - x|^2 on the shared layers.
        clip_norm: C, bound on each example's gradient (l2); None: no record-level privacy.
        noise_multiplier: z; noise of standard deviation z C is added to each clipped sum. 0: none here.
    """

    algorithm: Literal["fedavg", "fedsgd"] = "fedavg"
    batch: Literal["full", "fixed", "poisson"] = "full"
    batch_size: int | None = None
    sampling_rate: float | None = None
    batch_cap: int | None = None
    expected_batch: float = 0.0
    steps: int = 1
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal_mu: float = 0.0
    clip_norm: float | None = None
    noise_multiplier: float = 0.0

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
                (self.algorithm != "fedsgd" or self.steps == 1, "fedsgd", "one step a round", self.steps,
                 'Set training.algorithm = "fedavg" for more'),
            )
            if not sound
        ]  # fmt: skip
        if faults:
            raise PlanError(faults)
