"""A plan and the shape of its rows, put together: the model that installed code builds, and every number that follows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import nn

from consilia.core.errors import PlanError, Problem
from consilia.core.randomness import SharedSeed
from consilia.core.update import Vector
from consilia.learning.architecture import architecture, hidden_layers
from consilia.learning.flat import FlatModel
from consilia.learning.initial import load_initial
from consilia.learning.models import build as build_model
from consilia.learning.models import problems
from consilia.learning.stacking.module import StackModule
from consilia.plan.check import check
from consilia.plan.phases import phases as phases_of
from consilia.plan.rules import broken
from consilia.plan.run_plan import RunPlan
from consilia.plan.schema import Plan
from consilia.plan.stack_work import stack_shape
from consilia.rounds.entropy import Entropy
from consilia.rounds.looks import Looks
from consilia.rounds.pipelines import Pipeline, pipelines
from consilia.rounds.server_step import Step, server_steps


@dataclass(frozen=True)
class RowShape:
    """What both ends must know of the rows before they can build a model; no row is needed for it.

    Attributes:
        input_shape: Shape of one row's features.
        classes: Number of classes.
    """

    input_shape: tuple[int, ...]
    classes: int


@dataclass(frozen=True)
class Assembled:
    """A checked plan, and the model it begins with.

    Attributes:
        run_plan: Every number that follows from the plan.
        shape: Of the rows.
        model: Built from installed code.
        initial: The model's first vector, shape (d,).
    """

    run_plan: RunPlan
    shape: RowShape
    model: FlatModel
    initial: Vector

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """Each phase's pipeline, which both ends build from the plan's public numbers."""
        return pipelines(self.run_plan, control_dim=self.model.dim if self.run_plan.plan.training.scaffold else 0)

    @cached_property
    def looks(self) -> Looks:
        """How this process looks at models: those that many simulated sites are sent it looks at once."""
        return Looks(self.initial, hidden_layers(self.model.module, self.model.segments))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """How far an honest coordinator's step can lead, in each phase."""
        return server_steps(self.run_plan, self.pipelines)

    @property
    def payload_dim(self) -> int:
        """Length of the vector that the coordinator sends: the model, and with SCAFFOLD the control variate."""
        return self.model.dim * (2 if self.run_plan.plan.training.scaffold else 1)


def require_rules(plan: Plan) -> None:
    """Refuse a plan that breaks a rule, before any data is read.

    Raises:
        PlanError: With every rule that it breaks.
    """
    found = broken(plan)
    if found:
        raise PlanError(found)


def assemble(plan: Plan, shape: RowShape, counts: Mapping[str, int], initial: Path | None) -> Assembled:
    """Build the model and check the plan with it.

    Args:
        plan: The plan.
        shape: Of the rows.
        counts: Each site's training rows, or patients where they are the unit.
        initial: The file of the weights that the plan names; None where it names none.

    Raises:
        PlanError: With every problem of the plan.
    """
    require_rules(plan)
    config, module = plan.model, module_of(plan, shape)
    unfit = [
        *problems(module, unit=plan.privacy.unit, input_shape=shape.input_shape),
        *_unfit_rows(plan, shape.input_shape),
    ]
    if unfit:
        raise PlanError(unfit)
    built = architecture(module)
    model = FlatModel(module, config.local_layers)
    digest = None if initial is None else load_initial(initial, model, other_head=True).sha256
    for phase in phases_of(plan):
        model.part(phase.train)  # refuses a part that the model lacks
    if model.batch_statistics and config.local_layers != "norm" and not _plain_average(plan):
        raise PlanError.of(
            "plan key training.server_optimizer",
            needs='plain averaging for shared BatchNorm statistics (synchronous fedavg, "sgd", server_learning_rate = 1)',
            got=f'{plan.aggregation.mode} {plan.training.algorithm} with "{plan.training.server_optimizer}"',
            hint='Keep the norm layers at the sites (model.local_layers = "norm"), or use GroupNorm',
        )
    run_plan = check(
        plan, counts=counts, input_shape=shape.input_shape, classes=shape.classes, segments=model.segments, initial=digest,
        architecture=built,
    )  # fmt: skip
    return Assembled(run_plan, shape, model, model.get())


def module_of(plan: Plan, shape: RowShape) -> nn.Module:
    """Build a plan's model from installed code; its first weights follow from the public seed.

    Raises:
        PlanError: If it cannot be built for these rows.
    """
    if plan.training.algorithm == "stacking":
        return StackModule(stack_shape(plan, math.prod(shape.input_shape)), plan.stack.row_bound)
    config = plan.model
    return build_model(
        config.name, input_shape=shape.input_shape, classes=shape.classes, hidden=tuple(config.hidden),
        activation=config.activation, seed=SharedSeed.of(plan.run.seed).derive("model").integer(),
    )  # fmt: skip


def entropy_of(plan: Plan) -> Entropy:
    """Return the operating system's randomness, or the public seed's in the reproducible mode."""
    return Entropy(SharedSeed.of(plan.run.seed).derive("reproducible") if plan.run.reproducible else None)


def _unfit_rows(plan: Plan, input_shape: Sequence[int]) -> list[Problem]:
    if plan.training.augment == "none" or len(input_shape) == 3:
        return []
    return [Problem(f'plan key training.augment = "{plan.training.augment}"', "images (channels, height, width)",
                    f"rows of shape {tuple(input_shape)}", 'Set training.augment = "none"')]  # fmt: skip


def _plain_average(plan: Plan) -> bool:
    # A running variance is an average, not a weight: a step of another kind could make it negative.
    training = plan.training
    return plan.aggregation.mode == "synchronous" and (
        training.algorithm == "fedavg" and training.server_optimizer == "sgd" and training.server_learning_rate == 1.0
    )
