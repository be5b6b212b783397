"""A process that computes for a run's sites. It holds nothing that cannot be made again: no ledger, no key, no state."""

import os
import platform
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from time import perf_counter, process_time

import numpy as np
import ray
import torch

from consilia.core.update import Vector
from consilia.core.version import VERSION
from consilia.federation.conduct import pin
from consilia.federation.onray.recipe import Done, Job, ModelRecipe, SiteRecipe
from consilia.rounds.pending import Outcome
from consilia.rounds.ports import Learner
from consilia.rounds.together import Together

_BYTES_KEPT = 1 << 30  # of rows that a worker keeps in view; what comes after lets go of the longest unused


def versions() -> dict[str, str]:
    """Return what must be the same at both ends, so that a site's work is the same there as here."""
    return {
        "Consilia": VERSION,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__,
        "NumPy": np.__version__,
    }


class Worker:
    """Computes jobs, one after the other or, where the run allows it, together.

    Args:
        recipe: The run's model.
        together: Whether sites may be trained together.
    """

    def __init__(self, recipe: ModelRecipe, together: bool) -> None:
        # Rows are shared memory, which nobody may write to; torch says so once, and nothing here writes to them.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        self._model = recipe.build()
        self._local = self._model.local_state()
        pin(recipe.plan, self._model.dim)
        torch.set_num_threads(1)  # a worker has one core, and there are as many workers as cores
        self._trainer = Together(self._model, process_time) if together else None
        self._learners: OrderedDict[str, tuple[Learner, int]] = OrderedDict()

    def greet(self) -> tuple[dict[str, str], int]:
        """Return this end's versions, and the id of this process."""
        return versions(), os.getpid()

    def compute(
        self, payload: Vector, jobs: Sequence[Job], recipes: "Sequence[ray.ObjectRef[SiteRecipe]]"
    ) -> tuple[list[Done], float]:
        """Do jobs on one model; return their results in order, and the seconds that they took.

        Args:
            payload: What the coordinator sent.
            jobs: What to do.
            recipes: Where each job's site is to be had; fetched where it is not known.
        """
        begun = perf_counter()
        pending = [
            job.pending(self._learner(job.site, recipe), payload) for job, recipe in zip(jobs, recipes, strict=True)
        ]
        outcomes: list[Outcome] = [one.compute() for one in pending] if self._trainer is None else []
        if self._trainer is not None:
            outcomes = self._trainer.compute(pending)
        done = [Done.of(outcome, one.secret) for outcome, one in zip(outcomes, pending, strict=True)]
        return done, perf_counter() - begun

    def _learner(self, site: str, recipe: "ray.ObjectRef[SiteRecipe]") -> Learner:
        if site not in self._learners:
            made = ray.get(recipe)
            self._model.load_local(
                self._local
            )  # a learner begins with the run's first model, not with another site's layers
            size = sum(part.features.nbytes for part in (made.rows.train, made.rows.test))
            self._learners[site] = made.learner(self._model), size
            while len(self._learners) > 1 and sum(size for _, size in self._learners.values()) > _BYTES_KEPT:
                self._learners.popitem(last=False)
        self._learners.move_to_end(site)
        return self._learners[site][0]
