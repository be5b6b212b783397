"""Phases: parts of the rounds with settings of their own. A plan without any is one phase."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from consilia.core.errors import Problem
from consilia.plan.schema import PhaseSection, Plan
from consilia.plan.values import MOST_ROUNDS

_TRAINING = ("learning_rate", "server_learning_rate", "sampling_rate", "batch_size", "local_steps")
_NEEDS: dict[str, tuple[str, Callable[[Plan], bool]]] = {
    "learning_rate": ('training.algorithm = "fedavg"', lambda p: p.training.algorithm == "fedavg"),
    "local_steps": ('training.algorithm = "fedavg"', lambda p: p.training.algorithm == "fedavg"),
    "sampling_rate": ('training.batch = "poisson"', lambda p: p.training.batch == "poisson"),
    "batch_size": ('training.batch = "fixed"', lambda p: p.training.batch == "fixed"),
    "clip_norm": ("a privacy.unit other than none", lambda p: p.privacy.unit != "none"),
    "noise": ("a privacy.unit other than none", lambda p: p.privacy.unit != "none"),
    "noise_scale": ("a privacy.unit other than none", lambda p: p.privacy.unit != "none"),
}


@dataclass(frozen=True)
class Phase:
    """A part of the rounds.

    Attributes:
        index: Its place, from 0.
        first: Its first round, from 1.
        rounds: How many it has.
        plan: The plan of this phase alone, without phases.
        noise_scale: Its noise multiplier over the run's; 0: clipped, not noised.
        train: Which layers move.
    """

    index: int
    first: int
    rounds: int
    plan: Plan
    noise_scale: float = 1.0
    train: Literal["all", "head", "backbone"] = "all"

    @property
    def last(self) -> int:
        """Its last round."""
        return self.first + self.rounds - 1


def total_rounds(plan: Plan) -> int:
    """Return the rounds of all phases."""
    return sum(phase.rounds for phase in plan.phases) or plan.training.rounds


def phases(plan: Plan) -> tuple[Phase, ...]:
    """Return the plan's phases in order; a plan that names none is one."""
    if not plan.phases:
        return (Phase(0, 1, plan.training.rounds, plan),)
    found, first = [], 1
    for index, section in enumerate(plan.phases):
        scale = section.noise_scale if section.noise else 0.0
        found.append(Phase(index, first, section.rounds, _alone(plan, section), scale, section.train))
        first += section.rounds
    return tuple(found)


def first_rounds(plan: Plan, rounds: int) -> Plan:
    """Return the plan cut to its first rounds."""
    if not plan.phases:
        return _with(plan, training={"rounds": rounds})
    kept, left = [], rounds
    for section in plan.phases:
        if left > 0:
            kept.append(section.model_copy(update={"rounds": min(left, section.rounds)}))
            left -= section.rounds
    return plan.model_copy(update={"phases": kept})


def phase_rules(plan: Plan) -> list[Problem]:
    """Return the rules on [[phases]] that the plan breaks."""
    if not plan.phases:
        return []
    found = [problem for index, section in enumerate(plan.phases) for problem in _section(plan, index, section)]
    if total_rounds(plan) > MOST_ROUNDS:
        found.append(Problem("plan section phases", f"at most {MOST_ROUNDS} rounds in all", f"{total_rounds(plan)}",
                             "Shorten them"))  # fmt: skip
    quiet = [section for section in plan.phases if not section.noise]
    if plan.privacy.unit != "none" and len(quiet) == len(plan.phases):
        found.append(Problem("plan section phases", "a phase with noise", "none",
                             'Set privacy.unit = "none", or leave noise = false out'))  # fmt: skip
    elif quiet and plan.privacy.epsilon is not None:
        found.append(Problem("plan key privacy.epsilon", "noise in every phase", f"{len(quiet)} without",
                             "Remove it and set privacy.noise_multiplier: the run then makes no claim"))  # fmt: skip
    if quiet and plan.privacy.unit != "none" and plan.ledger.max_epsilon is not None:
        found.append(Problem("plan key ledger.max_epsilon", "noise in every phase", f"{len(quiet)} without",
                             "A run without a bound fits under no limit"))  # fmt: skip
    return found


def _section(plan: Plan, index: int, section: PhaseSection) -> Iterator[Problem]:
    who = f"plan key phases.{index + 1}"
    for key, (needs, met) in _NEEDS.items():
        default = PhaseSection.model_fields[key].default
        if getattr(section, key) != default and not met(plan):
            yield Problem(f"{who}.{key}", needs, "a plan where it has no effect", "Remove the key")
    if not section.noise and section.noise_scale != 1.0:
        yield Problem(f"{who}.noise_scale", "noise = true", "noise = false, which it has no effect on", "Remove one")
    if index and section.clip_norm is not None and plan.privacy.clipping == "adaptive":
        yield Problem(f"{who}.clip_norm", 'privacy.clipping other than "adaptive" after the first phase', "adaptive",
                      "Remove the key: C goes on from where the phase before left it")  # fmt: skip
    if section.train == "all":
        return
    privacy, training = plan.privacy, plan.training
    site_noise = privacy.unit == "none" or (privacy.within_site and privacy.noise == "site")
    for needs, got, fits in (
        ("noise inside training: privacy.unit = record or patient with noise at the site, or none",
         f"unit {privacy.unit}, noise at the {privacy.noise}", site_noise),
        ('model.local_layers = "none"', f'"{plan.model.local_layers}"', plan.model.local_layers == "none"),
        ("training.scaffold = false", "true", not training.scaffold),
    ):  # fmt: skip
        if not fits:
            yield Problem(f'{who}.train = "{section.train}"', needs, got, 'Leave it at "all"')


def _alone(plan: Plan, section: PhaseSection) -> Plan:
    changed = {key: value for key in _TRAINING if (value := getattr(section, key)) is not None}
    if section.local_steps is not None:
        changed["local_epochs"] = None
    privacy = {"clip_norm": section.clip_norm} if section.clip_norm is not None else {}
    alone = _with(plan, training={"rounds": section.rounds, **changed}, privacy=privacy)
    return alone.model_copy(update={"phases": []})


def _with(plan: Plan, **sections: dict[str, Any]) -> Plan:
    return plan.model_copy(
        update={name: getattr(plan, name).model_copy(update=changes) for name, changes in sections.items()}
    )
