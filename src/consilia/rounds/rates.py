"""The schedule of the rate that moves the model: the site's under fedavg, the coordinator's under fedsgd."""

from consilia.aggregate.schedule import rate_factor
from consilia.plan.training import TrainingSection


def site_factor(training: TrainingSection, number: int, rounds: int) -> float:
    """Return what the local rate of a round is multiplied by."""
    return _factor(training, number, rounds) if training.algorithm == "fedavg" else 1.0


def coordinator_factor(training: TrainingSection, number: int, rounds: int) -> float:
    """Return what the coordinator's rate of a round is multiplied by."""
    return _factor(training, number, rounds) if training.algorithm == "fedsgd" else 1.0


def _factor(training: TrainingSection, number: int, rounds: int) -> float:
    return rate_factor(training.schedule, training.warmup_rounds, number, rounds)
