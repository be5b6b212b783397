"""Workers on a Ray cluster: who is free, who does what, and what is done again when one is lost."""

import contextlib
import logging
import math
import os
import signal
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from consilia.core.errors import TransportError
from consilia.federation.onray.recipe import Done, Job, ModelRecipe, SiteRecipe
from consilia.federation.onray.worker import Worker, versions
from consilia.federation.simulation import Prepared
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.together import LEAST_TOGETHER

_log = logging.getLogger("consilia.ray")
_TRIES = 3  # workers that may be lost with one task before it is the task's fault
_BEGIN = 120.0  # seconds that a cluster may take to give the first core
_SECONDS = 0.5  # of work that a worker is given at once: enough to hide the way there, little to lose


class WorkerLost(Exception):  # noqa: N818  (its name is what the coordinator hears of it)
    """A task took every worker with it that it was given to."""


@dataclass
class _Task:
    """What a site booked.

    Attributes:
        pending: It.
        tries: Workers that were lost with it.
        awaited: Whether somebody still waits for it.
    """

    pending: Pending
    tries: int = 0
    awaited: bool = True


@dataclass
class _Member:
    """A worker and what is expected from it.

    Attributes:
        actor: Ray's handle.
        due: Its greeting, or the results of its tasks; None while it is free.
        tasks: What it is given.
        process: Its process id, once it has greeted.
        sent: When it was given its tasks, on the monotonic clock.
        patience: When it is given up, where nobody waits for one of them any more.
    """

    actor: Any
    due: Any
    tasks: list[_Task] = field(default_factory=list)
    process: int | None = None
    sent: float = 0.0
    patience: float = math.inf


class Crew:
    """As many workers as the cluster has cores, or fewer where a round asks fewer sites.

    Args:
        prepared: The run.
        together: Whether sites may be trained together.
        own: Whether the cluster is this process's own, on this machine.

    Raises:
        TransportError: If the cluster has no core, or gives none within two minutes.

    Guarantees:
        A task that was lost with its worker is done again from the same inputs, its stream of secret randomness included: the
        result is the one that was lost, so what is released, and charged, is one result.
    """

    def __init__(self, prepared: Prepared, *, together: bool, own: bool) -> None:
        plan = prepared.run_plan
        cores = _cores()
        if cores < 1:
            raise TransportError.of(
                "engine ray", needs="a cluster with a core", got="none", hint="Add a node: ray start"
            )
        self._model = ray.put(ModelRecipe.of(plan.plan, prepared.shape, prepared.model))
        self._prepared, self._together, self._own = prepared, together, own
        self._sites: dict[str, Any] = {}
        self._payload: tuple[str, Any] = ("", None)
        self._again: deque[_Task] = deque()
        self._pace: dict[str, float] = {}
        self._failed_to_start = 0
        self._count = min(cores, max(len(plan.sites), 1))
        self._actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Worker)
        self._members = [self._hire() for _ in range(self._count)]
        self._await_the_first()

    def room(self, waiting: int) -> int:
        """Return how many tasks a free worker should be given now: less and less towards the end, and never much time's."""
        if self._again or not waiting or all(member.due is not None for member in self._members):
            return 0
        share = math.ceil(waiting / (2 * self._count))
        pace = max(self._pace.values(), default=0.0)
        first = 4 * LEAST_TOGETHER if self._together else 1
        return min(share, max(1, int(_SECONDS / pace)) if pace else first)

    def give(self, booked: Sequence[Pending]) -> None:
        """Give tasks to a worker that is free."""
        free = next((member for member in self._members if member.due is None), None)
        tasks = [_Task(pending) for pending in booked]
        if free is None:
            self._again.extend(tasks)
        elif tasks:
            self._send(free, tasks)

    def wait(self, seconds: float) -> list[tuple[Pending, Outcome]]:
        """Return what was computed as soon as something was, or a worker is free, or `seconds` passed.

        Raises:
            TransportError: If the cluster cannot start a worker.
        """
        self._place()
        due = {member.due: member for member in self._members if member.due is not None}
        if not due:
            return []
        seconds = min(seconds, min(member.patience for member in self._members) - time.monotonic())
        first, _ = ray.wait(list(due), num_returns=1, timeout=max(0.0, seconds))
        ready, _ = ray.wait(list(due), num_returns=len(due), timeout=0) if first else ([], [])
        found = [one for reference in ready for one in self._received(due[reference])]
        for member in self._members:
            if member.patience < time.monotonic():
                self._replace(member)
        self._place()
        return found

    def drop(self, sites: Collection[str]) -> None:
        """Forget the tasks of these sites. A worker that is at one is given as long again to end it, then it is replaced.

        Raises:
            TransportError: If the cluster has nobody left who could work.
        """
        now = time.monotonic()
        self._again = deque(task for task in self._again if task.pending.task.site not in sites)
        for member in self._members:
            for task in member.tasks:
                if task.awaited and task.pending.task.site in sites:
                    task.awaited = False
                    member.patience = min(member.patience, 2 * now - member.sent)
        if _cores() < 1:
            raise TransportError.of(
                "engine ray", needs="a worker", got="a cluster that has lost every node", hint=_RESUME
            )

    def close(self) -> None:
        """Let all workers go."""
        for member in self._members:
            self._dismiss(member)

    def _await_the_first(self) -> None:
        """Wait until somebody can work: what a process takes to begin is not a round's time."""
        end = time.monotonic() + _BEGIN
        while all(member.due is not None for member in self._members):
            if time.monotonic() > end:
                raise TransportError.of("engine ray", needs="a free core", got=f"none in {_BEGIN:g} s",
                                        hint="Look who uses the cluster: ray status")  # fmt: skip
            self.wait(max(0.0, end - time.monotonic()))

    def _place(self) -> None:
        for member in self._members:
            if member.due is None and self._again:
                self._send(member, [self._again.popleft()])

    def _hire(self) -> _Member:
        actor: Any = self._actor.remote(self._model, self._together)
        return _Member(actor, actor.greet.remote())

    def _dismiss(self, member: _Member) -> None:
        with contextlib.suppress(RayError):
            ray.kill(member.actor)
        if self._own and member.process is not None:  # one that was stopped hears nothing else
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.process, signal.SIGKILL)

    def _send(self, member: _Member, tasks: list[_Task]) -> None:
        payload = self._payload_of(tasks[0].pending)
        jobs = [Job.of(task.pending) for task in tasks]
        recipes = [self._site(job.site) for job in jobs]
        member.sent, member.patience = time.monotonic(), math.inf
        member.tasks, member.due = tasks, member.actor.compute.remote(payload, jobs, recipes)

    def _payload_of(self, pending: Pending) -> Any:
        if self._payload[0] != pending.model_digest:  # one copy a round, whoever it goes to
            self._payload = pending.model_digest, ray.put(pending.payload)
        return self._payload[1]

    def _site(self, name: str) -> Any:
        if name not in self._sites:
            plan = self._prepared.run_plan
            recipe = SiteRecipe.of(plan.site(name), self._prepared.rows[name], len(plan.schedule))
            self._sites[name] = ray.put(recipe)
        return self._sites[name]

    def _received(self, member: _Member) -> list[tuple[Pending, Outcome]]:
        tasks, due = member.tasks, member.due
        outcomes: list[Outcome] | None = None
        try:
            value = ray.get(due)
        except RayTaskError as error:  # code of ours or of the model's that raised where nothing is caught
            if not tasks:
                raise self._unfit(type(error.cause).__name__) from None
            outcomes = [_as_raised(error)] * len(tasks)
        except RayError as error:
            return self._lost(member, error)
        member.tasks, member.due, member.patience = [], None, math.inf
        self._failed_to_start = 0
        if not tasks:
            member.process = self._welcome(value)
            return []
        if outcomes is None:
            done: list[Done] = value[0]
            self._pace[tasks[0].pending.task.kind] = value[1] / len(tasks)
            outcomes = [one.outcome(task.pending) for task, one in zip(tasks, done, strict=True)]
        return [(task.pending, one) for task, one in zip(tasks, outcomes, strict=True) if task.awaited]

    def _lost(self, member: _Member, error: RayError) -> list[tuple[Pending, Outcome]]:
        """Replace a worker; its tasks are done again, each by itself, so that one that kills workers harms no other."""
        if not member.tasks:
            self._failed_to_start += 1
            if self._failed_to_start >= _TRIES * self._count:
                raise self._unfit(type(error).__name__)
        _log.warning("lost a worker (%s) with %d tasks", type(error).__name__, len(member.tasks))
        for task in member.tasks:
            task.tries += 1
        spent = [task for task in member.tasks if task.tries >= _TRIES and task.awaited]
        member.tasks = [task for task in member.tasks if task.tries < _TRIES]
        self._replace(member)
        return [(task.pending, WorkerLost(f"{_TRIES} workers ended with this task")) for task in spent]

    def _replace(self, member: _Member) -> None:
        self._dismiss(member)
        self._again.extend(task for task in member.tasks if task.awaited)
        self._members[self._members.index(member)] = self._hire()

    def _welcome(self, greeting: tuple[dict[str, str], int]) -> int:
        theirs, process = greeting
        mine = versions()
        if theirs != mine:
            raise TransportError.of("engine ray", needs=f"workers with {_told(mine)}", got=_told(theirs),
                                    hint="Install the same releases on every node")  # fmt: skip
        return process

    def _unfit(self, got: str) -> TransportError:
        return TransportError.of("engine ray", needs="workers that start", got=got,
                                 hint="Install consilia[ray] and the plan's model on every node")  # fmt: skip


_RESUME = "Add nodes, then go on: consilia run --resume RUN --engine ray"


def _cores() -> int:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 0))


def _as_raised(error: RayTaskError) -> Exception:
    made: Exception = type(type(error.cause).__name__, (Exception,), {})("raised in a worker; its log has the words")
    return made


def _told(releases: dict[str, str]) -> str:
    return ", ".join(f"{name} {release}" for name, release in releases.items())
