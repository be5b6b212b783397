"""What crosses to a worker, as plain values: enough to make a site's learner there from installed code.

A model crosses as the plan that names it and its numbers, rows as arrays, a stream of secret randomness as its key and how
far it was used. All of it is patient data or opens some: workers belong to the trust domain of the process that sends it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from consilia.core import errors
from consilia.core.errors import ConsiliaError, Problem
from consilia.core.randomness import SecretRng, SecretState
from consilia.core.update import ProtocolMessage, Vector
from consilia.data.table import Table
from consilia.federation.assemble import RowShape, module_of
from consilia.federation.one_site import learner_of
from consilia.learning.flat import FlatModel
from consilia.plan.run_plan import SiteHalf
from consilia.plan.schema import Plan
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.ports import Learner, LocalState, Score, Trained
from consilia.rounds.rows import SiteRows

_ALIGNED = 64  # bytes


@dataclass(frozen=True)
class ModelRecipe:
    """A model that a worker builds once.

    Attributes:
        plan: Names it.
        shape: Of the rows.
        state: Its numbers, those that never travel in a round included, by name.
    """

    plan: Plan
    shape: RowShape
    state: Mapping[str, NDArray[np.generic]]

    @classmethod
    def of(cls, plan: Plan, shape: RowShape, model: FlatModel) -> "ModelRecipe":
        """Write down a model as it stands."""
        tensors = model.module.state_dict()
        return cls(plan, shape, {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()})

    def build(self) -> FlatModel:
        """Build the model from the code that is installed here."""
        module = module_of(self.plan, self.shape)
        module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in self.state.items()})
        return FlatModel(module, self.plan.model.local_layers)


@dataclass(frozen=True)
class SiteRecipe:
    """A site's learner: what the plan asks of it, and its rows.

    Attributes:
        half: The site's half of the plan.
        rows: Its rows.
        rounds: Length of the run.
    """

    half: SiteHalf
    rows: SiteRows
    rounds: int

    @classmethod
    def of(cls, half: SiteHalf, rows: SiteRows, rounds: int) -> "SiteRecipe":
        """Write down a site; of its rows only what a learner reads: no record's name, and patients only where they count."""
        by_patient = half.plan.privacy.unit == "patient"
        return cls(half, SiteRows(_bare(rows.train, by_patient), _bare(rows.test, by_patient)), rounds)

    def learner(self, model: FlatModel) -> Learner:
        """Return the site's learner on a model. Large arrays stay where they are: in memory that a node's workers share."""
        rows = SiteRows(_aligned(self.rows.train), _aligned(self.rows.test))
        return learner_of(model, self.half, rows, self.rounds)


def _bare(table: Table, by_patient: bool) -> Table:
    nobody = np.zeros(len(table), np.str_)
    patients = table.patients if by_patient else None
    return replace(table, ids=nobody, sites=None, patients=patients, official_test=None, notes=(), columns=())


def _aligned(table: Table) -> Table:
    # Kernels add in another order where an array does not begin at a multiple of 16 bytes. NumPy's own arrays do, Ray's small
    # ones (below 2 kB) need not.
    if table.features.ctypes.data % _ALIGNED == 0:
        return table
    return replace(table, features=np.array(table.features))


@dataclass(frozen=True)
class Job:
    """One site's task. The same job gives the same bits, wherever and however often it is done.

    Attributes:
        site: The site.
        kind: train or evaluate.
        round: The round.
        local: What the site kept since the last round that counted.
        secret: Where its batches and noise come from.
    """

    site: str
    kind: str
    round: int
    local: LocalState | None
    secret: SecretState

    @classmethod
    def of(cls, pending: Pending) -> "Job":
        """Write down what a site has booked, without its charge: that stays with the site."""
        task = pending.task
        return cls(task.site, task.kind, task.round, pending.local, pending.secret.state())

    def pending(self, learner: Learner, payload: Vector) -> Pending:
        """Return the task as `Pending.compute` and `Together` take it."""
        task = ProtocolMessage(self.kind, self.site, self.round, {})
        return Pending(task, "", None, learner, payload, self.local, SecretRng.resumed(self.secret))


@dataclass(frozen=True)
class Fault:
    """What a worker's code raised, as words."""

    kind: str
    text: str
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, error: Exception) -> "Fault":
        """Write down an error."""
        return cls(type(error).__name__, str(error), error.problems if isinstance(error, ConsiliaError) else ())

    def error(self) -> Exception:
        """Return an error of the same name, which a site answers for as if it had been raised here."""
        known = getattr(errors, self.kind, None)
        if self.problems and isinstance(known, type) and issubclass(known, ConsiliaError):
            return known(self.problems)
        made: Exception = type(self.kind, (Exception,), {})(self.text)
        return made


@dataclass(frozen=True)
class Done:
    """A job's result.

    Attributes:
        found: What the learner gave, or what it raised.
        position: How far the job's stream was used: the site goes on behind it.
    """

    found: Trained | Score | Fault
    position: int

    @classmethod
    def of(cls, outcome: Outcome, secret: SecretRng) -> "Done":
        """Write down an outcome."""
        found = Fault.of(outcome) if isinstance(outcome, Exception) else outcome
        return cls(found, secret.state().position)

    def outcome(self, pending: Pending) -> Outcome:
        """Return the outcome as the site takes it, and move the site's stream behind what was drawn elsewhere."""
        pending.secret.move_to(self.position)
        if isinstance(self.found, Fault):
            return self.found.error()
        if isinstance(self.found, Trained):  # what comes from shared memory cannot be written to, and would keep it
            local = {name: np.array(value) for name, value in self.found.local_state.items()}
            return Trained(np.array(self.found.vector), local, self.found.loss)
        return self.found
