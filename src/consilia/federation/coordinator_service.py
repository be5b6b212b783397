"""The coordinator as a service: takes plans from operators, proposes them to the sites, and conducts one run at a time."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilia.core.canonical import Json
from consilia.core.errors import ConsiliaError, PlanError, StoreError
from consilia.crypto.signing import SigningKey
from consilia.federation.assemble import Assembled, assemble
from consilia.federation.attesting import attester_of, policy_of
from consilia.federation.conduct import conduct, first_state, give_up, pin
from consilia.federation.interruptible import Interruptible
from consilia.federation.means import Means
from consilia.federation.offer import Surveyed
from consilia.federation.proposal import Proposal
from consilia.plan.facts import facts
from consilia.plan.load import canonical, from_json
from consilia.rounds.ports import Transport
from consilia.rounds.state import TrainingState, from_bytes, to_pieces
from consilia.secagg.roster import Roster
from consilia.store.journal import Journal, Status
from consilia.store.runs import QueuedRun, RunQueue
from consilia.transport.link.hub import Hub

_log = logging.getLogger("consilia.coordinator")
JOURNAL = "journal.sqlite"
_STEP = 0.5  # seconds between looks at a queue that does not change by itself


class Halted(Exception):  # noqa: N818  (no error: the run goes on when the service starts again)
    """The service was told to stop between two rounds."""


@dataclass
class Progress:
    """What is known of a run that this process works on, for `consilia status`.

    Attributes:
        proposal: Who takes part.
        since: When this process took it up.
        last: The newest round's record.
        accuracy: The newest that a round came to.
    """

    proposal: Proposal
    since: float
    last: dict[str, Any] | None = None
    accuracy: float | None = None

    def note(self, record: dict[str, Any]) -> None:
        """Keep what is told of a round; all of it is in the journal."""
        self.last = record
        if record.get("accuracy") is not None:
            self.accuracy = record["accuracy"]


class CoordinatorService:
    """Works through the queue of runs.

    Args:
        place: Where runs are kept: a file or a database URL.
        home: Folder of the runs' results and of first weights.
        hub: Where sites come in.
        roster: The sites' public keys; called for each run.
        signing: The coordinator's key.
        run_seconds: How long a run may take.
        heartbeat: Seconds between signs of life of a site.
        ended: Called with the folder of a run that ended.
        clock: Monotonic seconds.
        rounds: What moves the messages of rounds, where it is not the hub itself.
    """

    def __init__(
        self, place: Path | str, home: Path, hub: Hub, *, roster: Callable[[], Roster], signing: SigningKey,
        run_seconds: float, heartbeat: float, ended: Callable[[Path], None], clock: Callable[[], float] = time.monotonic,
        rounds: Transport | None = None,
    ) -> None:  # fmt: skip
        self._place = place
        self._home = home
        self._hub = hub
        self._rounds: Transport = hub if rounds is None else rounds
        self._roster = roster
        self._signing = signing
        self._limit = run_seconds
        self._patience = 3 * heartbeat
        self._ended = ended
        self._clock = clock
        self.queue = RunQueue(place)
        self.progress: dict[str, Progress] = {}
        self._changed = threading.Event()
        self._conducted: str | None = None

    def wake(self) -> None:
        """Look at the queue now: something came in."""
        self._changed.set()

    def serve(self, stop: threading.Event) -> None:
        """Work until told to stop; a run that is under way then goes on when the service starts again."""
        self._hand_over_what_is_left()
        while not stop.is_set():
            self._changed.clear()
            for queued in self.queue.open():
                if stop.is_set():
                    return
                self._look_after(queued, stop)
            self._changed.wait(_STEP)

    def _hand_over_what_is_left(self) -> None:
        """Hand over the results of runs whose coordinator was killed right after their last transaction."""
        for one in self.queue.all():
            folder = self._home / "runs" / one.run
            if one.status in ("done", "stopped", "failed") and folder.is_dir() and not (folder / JOURNAL).exists():
                try:
                    self._hand_over(one.run)
                except StoreError as error:
                    _log.error("the result of run %s cannot be handed over: %s", one.run, error)

    def _hand_over(self, run: str) -> None:
        folder = self._home / "runs" / run
        with Journal.open(self._place, run=run, read_only=True) as journal:
            journal.export(folder / JOURNAL)
        self._ended(folder)

    def _look_after(self, queued: QueuedRun, stop: threading.Event) -> None:
        try:
            progress = self.progress.get(queued.run) or self._begin(queued)
            if not self.queue.stop_asked(queued.run):
                progress.proposal.advance(self._hub, self._connected())
            assembled, end = progress.proposal.assembled, self._end(queued, progress)
            if end is not None and (queued.status == "queued" or assembled is None):
                self.queue.end(queued.run, *end)
                self.progress.pop(queued.run, None)
                _log.info("run %s ended before its first round: %s: %s", queued.run, *end)
            elif assembled is not None and (end is not None or progress.proposal.ready()):
                self._conduct(queued, progress, assembled, stop, end)
        except (
            StoreError
        ) as error:  # a full disk, a database that is away: what was committed is safe, and it may come back
            _log.error("run %s waits: %s", queued.run, error)
        except ConsiliaError as error:
            self._fail(queued, str(error))
        except Exception as error:
            _log.error("run %s failed", queued.run, exc_info=error)
            self._fail(queued, f"an unexpected failure ({type(error).__name__})")

    def _end(self, queued: QueuedRun, progress: Progress) -> tuple[Status, str] | None:
        """Return how a run ends before its rounds do; None if it may go on."""
        if self.queue.stop_asked(queued.run):
            return "stopped", "stopped by an operator"
        why = progress.proposal.hopeless()
        if why is None and self._clock() - progress.since > self._limit:
            why = f"not enough sites agreed in {self._limit / 3600:g} hours: {progress.proposal.still_out()}"
        return None if why is None else ("failed", why)

    def stop(self, run: str, *, by: str) -> None:
        """Have a run end: the round that is under way is given up where it waits.

        Raises:
            StoreError: If there is no such run, or the store cannot be written.
        """
        self.queue.ask_stop(run, by=by)
        if self._conducted == run:
            self._hub.give_up(f"run {run} was asked to stop by {by}")
        self.wake()

    def close(self) -> None:
        """Let go of the queue."""
        self.queue.close()

    def result(self, run: str) -> dict[str, Json] | None:
        """Return what a run that has ended came to; None where it had not begun.

        Raises:
            StoreError: If the store cannot be read.
        """
        path = self._home / "runs" / run / JOURNAL
        if not path.exists():
            return None
        with Journal.open(path, read_only=True) as journal:
            return journal.result

    def _fail(self, queued: QueuedRun, why: str) -> None:
        _log.error("run %s failed: %s", queued.run, why)
        self.queue.end(queued.run, "failed", why)
        self.progress.pop(queued.run, None)

    def _connected(self) -> list[str]:
        return [name for name, seen in self._hub.sites().items() if seen.connected]

    def _begin(self, queued: QueuedRun) -> Progress:
        """Take a run up: a new one, or one that an earlier process had begun."""
        if queued.status == "running":
            with Journal.open(self._place, run=queued.run, read_only=True) as journal:
                agreed = json.loads(journal.plan_json)
                records = journal.records()
            proposal = Proposal.resumed(queued.run, self._agreed(agreed), self._initial(agreed), self._patience)
        else:
            plan = from_json(json.loads(queued.plan_json))
            records = []
            names = tuple(plan.sites.only or [member.name for member in self._roster().members])
            initial = None if plan.model.initial is None else self._home / "initial" / plan.model.initial
            proposal = Proposal(queued.run, plan, names, initial, self._patience)
        progress = Progress(proposal, self._clock())
        for record in records:
            progress.note(record)
        self.progress[queued.run] = progress
        return progress

    def _agreed(self, agreed: Mapping[str, Any]) -> Assembled:
        """Put a run together again from what its journal says was agreed."""
        shape = Surveyed.read(agreed["shape"], who="the journal").shape
        return assemble(from_json(agreed["plan"]), shape, agreed["counts"], self._initial(agreed))

    def _initial(self, agreed: Mapping[str, Any]) -> Path | None:
        name = agreed["plan"]["model"]["initial"]
        return None if name is None else self._home / "initial" / str(name)

    def _conduct(
        self, queued: QueuedRun, progress: Progress, assembled: Assembled, stop: threading.Event,
        end: tuple[Status, str] | None,
    ) -> None:  # fmt: skip
        """Run what is left of a run's rounds; with `end`, end it where it stands."""
        plan, folder = assembled.run_plan, self._home / "runs" / queued.run
        folder.mkdir(parents=True, exist_ok=True)
        pin(plan.plan, assembled.model.dim)
        policy = policy_of(plan.plan, self._home)
        with (
            self.queue.held(queued.run),
            attester_of(policy) as attester,
            self._journal(queued, assembled) as journal,
        ):
            names = {terms.name for terms in plan.sites}
            moves = Interruptible(self._rounds, lambda: self.queue.stop_asked(queued.run))
            means = Means(moves, self._roster().among(names), self._signing, policy, attester)
            state = from_bytes(journal.state)
            self._conducted = queued.run
            try:
                if end is None:
                    between = self._between_rounds(progress, state, queued.run, stop)
                    conduct(assembled, means, journal, state, folder, between)
                else:
                    give_up(assembled, means, journal, state, folder, *end)
            except Halted:
                return
        self._conducted = None
        self.progress.pop(queued.run, None)
        _log.info("run %s ended: %s", queued.run, journal.status)
        self._hand_over(queued.run)

    def _between_rounds(
        self, progress: Progress, state: TrainingState, run: str, stop: threading.Event
    ) -> Callable[[dict[str, Any]], None]:
        began = self._clock() - state.seconds

        def on_round(record: dict[str, Any]) -> None:
            progress.note(record)
            if stop.is_set():
                raise Halted
            progress.proposal.advance(self._hub, self._connected())  # sites may join late
            if self.queue.stop_asked(run):
                state.stopped = "stopped by an operator"
            elif self._clock() - began > self._limit:
                state.stopped = f"not done after {self._limit / 3600:g} hours"

        return on_round

    def _journal(self, queued: QueuedRun, assembled: Assembled) -> Journal:
        """Open the run's journal, or begin it.

        Raises:
            PlanError: If this version of the software makes something else of the plan that the run began with.
        """
        plan = assembled.run_plan
        if queued.status == "queued":
            agreed = {
                "plan": canonical(plan.plan), "facts": facts(plan), "counts": {one.name: one.count for one in plan.sites},
                "shape": Surveyed(assembled.shape, None).body(), "within": None, "data_folder": "", "home": str(self._home),
                "coordinator": self._signing.public.hex(),
            }  # fmt: skip
            return Journal.create(
                self._place, run=queued.run, plan_json=json.dumps(agreed), digest=plan.digest,
                state=to_pieces(first_state(assembled)),
            )  # fmt: skip
        journal = Journal.open(self._place, run=queued.run)
        if journal.digest != plan.digest:
            journal.close()
            raise PlanError.of(f"run {queued.run}", needs=f"the plan it began with ({journal.digest[:12]})",
                               got=f"{plan.digest[:12]} from this version of Consilia",
                               hint="Restore the version it began with, or submit the plan again")  # fmt: skip
        return journal
