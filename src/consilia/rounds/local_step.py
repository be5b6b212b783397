"""How far one site's clipped and noised work can move the vector that it sends, from public numbers."""

import math
from dataclasses import dataclass

from consilia.plan.phases import Phase
from consilia.plan.run_plan import SiteTerms

# Adam, beta1 = .9, beta2 = .999: |m| / sqrt(v) <= (1 - b1) / sqrt((1 - b2) (1 - b1^2 / b2)), by Cauchy and Schwarz.
_ADAM = 0.1 / math.sqrt(0.001 * (1 - 0.81 / 0.999))
# The floor that dp-adam puts under v is at least sqrt(2 (1 - b2) / (1 + b2)) times the variance of the noise.
_FLOOR = math.sqrt(math.sqrt(2 * 0.001 / 1.999))


@dataclass(frozen=True)
class Reach:
    """A bound on the length of a vector: `fixed + slope x |model|`; weight decay alone makes it depend on the model."""

    fixed: float
    slope: float = 0.0

    def times(self, factor: float) -> "Reach":
        """Return the bound of so many times the vector."""
        return Reach(self.fixed * factor, self.slope * factor)

    def plus(self, more: float) -> "Reach":
        """Return the bound with something added to the vector."""
        return Reach(self.fixed + more, self.slope)


def noise_length(deviation: float, dim: int, tail: float) -> float:
    """Return what the length of N(0, deviation^2) on `dim` coordinates passes with probability at most exp(-tail^2 / 2).

    Source:
        Boucheron, Lugosi and Massart (2013), Concentration inequalities, theorem 5.6 (the norm is 1-Lipschitz).
    """
    return deviation * (math.sqrt(dim) + tail)


def own_reach(phase: Phase, terms: SiteTerms, z: float, dim: int, tail: float) -> Reach | None:
    """Return a bound on what one site hands to the pipeline, noise of its own training included; None where nothing bounds it.

    Args:
        phase: The phase.
        terms: The site's public numbers.
        z: The phase's noise multiplier.
        dim: Coordinates of the model.
        tail: See `noise_length`.
    """
    privacy, training, mine = phase.plan.privacy, phase.plan.training, terms.phases[phase.index]
    clip = privacy.clip_norm
    if clip is None or training.algorithm == "stacking":
        return None
    if not privacy.within_site:
        return Reach(clip)
    if privacy.clipping == "adaptive" or training.scaffold or not mine.expected_batch:
        return None
    inside = z * clip / mine.expected_batch if privacy.noise == "site" else 0.0
    gradient = clip * max(1.0, mine.batch_cap / mine.expected_batch)
    if training.algorithm == "fedsgd":
        return Reach(gradient + noise_length(inside, dim, tail), training.weight_decay)
    return _trained(phase, mine.steps, gradient, inside, dim, tail)


def _trained(phase: Phase, steps: int, gradient: float, deviation: float, dim: int, tail: float) -> Reach | None:
    training = phase.plan.training
    if training.optimizer == "adam":
        return Reach(steps * training.learning_rate * _ADAM * math.sqrt(dim))
    pull = training.weight_decay + training.proximal_mu
    if training.optimizer == "dp-adam":
        if pull or not deviation:
            return None
        most = gradient + noise_length(deviation, dim, tail)
        return Reach(steps * training.learning_rate * most / (_FLOOR * deviation))
    rate = training.learning_rate / (1 - training.momentum)
    if rate * pull > 1:  # such a step overshoots what it is pulled to: the bound would double with each
        return None
    # Noises of different steps are independent: their lengths add up as squares.
    moved = rate * (steps * gradient + noise_length(deviation * math.sqrt(steps), dim, tail))
    decay = rate * training.weight_decay * steps
    return Reach(moved, decay).times(math.exp(decay))
