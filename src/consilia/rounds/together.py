"""Sites of one process: trained together where that is quicker, else one by one."""

from collections.abc import Sequence

from consilia.learning.cohort.lockstep import Result
from consilia.learning.cohort.task import Task, alone
from consilia.learning.cohort.together import train_together
from consilia.learning.flat import FlatModel
from consilia.rounds.learner import TorchLearner
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.ports import Clock

LEAST_TOGETHER = 8  # sites in a turn: fewer share too little to gain
_SAMPLE = 4  # sites of a trial that are trained one by one
_TRIALS = 3
_MOST = 256  # sites in a turn, and below: coordinates of what a turn holds
_COORDINATES = 1 << 22


class Together:
    """Computes what sites have booked.

    The first turns of a run are trials: some sites are trained one by one, the others together, and every result counts.
    After that the quicker way is kept. Both give the same results up to rounding, so time decides about nothing else.

    Args:
        model: The model that the sites share.
        clock: Seconds that this process has worked.
    """

    def __init__(self, model: FlatModel, clock: Clock) -> None:
        self._model = model
        self._clock = clock
        self._alone: list[float] = []
        self._joint: list[float] = []

    @property
    def joint(self) -> bool | None:
        """Whether sites are trained together; None while it is tried."""
        return None if len(self._alone) < _TRIALS else min(self._joint) < min(self._alone)

    @property
    def at_once(self) -> int:
        """Sites in a turn. One by one each site ends before the next begins: a kill then costs one site's turn only."""
        return 1 if self.joint is False else max(1, min(_MOST, _COORDINATES // self._model.dim))

    def compute(self, pending: Sequence[Pending]) -> list[Outcome]:
        """Return each task's outcome, in their order."""
        outcomes: dict[int, Outcome] = {}
        learners: dict[int, TorchLearner] = {}
        tasks: dict[int, Task] = {}
        for place, one in enumerate(pending):
            if self.joint is False or one.task.kind != "train" or not isinstance(one.learner, TorchLearner):
                outcomes[place] = one.compute()
                continue
            try:
                tasks[place] = one.learner.task(one.payload, one.local, one.task.round, one.secret)
                learners[place] = one.learner
            except Exception as error:  # the site answers for it
                outcomes[place] = error
        results = (
            self._tried(list(tasks.values())) if self.joint is None else train_together(self._model, [*tasks.values()])
        )
        for (place, task), result in zip(tasks.items(), results, strict=True):
            outcomes[place] = result if isinstance(result, Exception) else learners[place].trained(task, result)
        return [outcomes[place] for place in range(len(pending))]

    def _tried(self, tasks: Sequence[Task]) -> list[Result]:
        if len(tasks) < LEAST_TOGETHER:
            return train_together(self._model, tasks)
        begun = self._clock()
        first = [_outcome(self._model, task) for task in tasks[:_SAMPLE]]
        between = self._clock()
        rest = train_together(self._model, tasks[_SAMPLE:])
        self._alone.append((between - begun) / len(first))
        self._joint.append((self._clock() - between) / len(rest))
        return [*first, *rest]


def _outcome(model: FlatModel, task: Task) -> Result:
    try:
        return alone(model, task)
    except Exception as error:  # the site answers for it
        return error
