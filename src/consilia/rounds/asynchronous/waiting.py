"""A site's half of two-phase rounds: an update is computed when the site can, waits on its disk, and goes into one sum.

The order is the guarantee, as in `rounds.site`: reserve in the site's ledger, train, store, say that it is ready; later, when a
round takes it: encode, seal with its commit and drop the stored update in one transaction, and only then send.
"""

from dataclasses import dataclass

import numpy as np
import safetensors.numpy

from consilia.core.canonical import Json
from consilia.core.errors import ProtocolError
from consilia.core.update import ProtocolMessage
from consilia.plan.run_plan import SiteHalf
from consilia.rounds.account import Account
from consilia.rounds.asynchronous.staleness import staleness_weight
from consilia.rounds.pending import Pending
from consilia.rounds.ports import Trained
from consilia.store.crash import crash_point
from consilia.store.ledger_store import Hold, SiteStore
from consilia.store.prepared import PreparedUpdate

_VECTOR, _LOSS, _LOCAL = "vector", "loss", "local."


@dataclass(frozen=True)
class Taken:
    """A stored update that a round takes.

    Attributes:
        trained: What training gave.
        hold: Its charge; None where nothing is charged.
        factor: What it counts for, by the steps the model has made since.
    """

    trained: Trained
    hold: Hold | None
    factor: float


class Waiting:
    """Updates of one run that wait at a site, at most one at a time.

    Args:
        half: The site's half of the plan.
        run: Id of the run.
        store: The site's file.
        account: The site's dealings with its ledger.

    Guarantees:
        An update is charged before it is computed, and so is every one that is computed again after a kill. It goes into one
        sum: what is sealed of it and that it waits no longer are one transaction. One that the model has left more than
        `max_staleness` steps behind is dropped and stays charged. An update counts for at most what its site's public weight
        gives it, whatever the coordinator says of its age: the factor is 1/sqrt(1 + tau) <= 1.
    """

    def __init__(self, half: SiteHalf, run: str, store: SiteStore, account: Account) -> None:
        self._half = half
        self._run = run
        self._store = store
        self._account = account
        self._who = f"site {half.terms.name}"
        self._limit = half.plan.aggregation.max_staleness

    def ready(self, task: ProtocolMessage) -> ProtocolMessage | None:
        """Return that an update waits already, or None if one has to be computed; one that is too old is dropped.

        Raises:
            ProtocolError: If the task is of a round that this site has given an update for, or names no version.
        """
        version = self._version(task, "version")
        newest = self._store.newest_round(self._run, "update")
        if task.round <= newest:
            raise self._refusal(f"a round after {newest}, which it gave an update for", f"round {task.round}")
        found = self._store.preparations.found(self._run)
        if found is None:
            return None
        if not 0 <= version - found.version <= self._limit:
            self._store.preparations.drop(self._run)
            return None
        return self._said(task, found)

    def keep(self, pending: Pending, trained: Trained) -> ProtocolMessage:
        """Store an update and return that it is ready; nothing in what is said was computed from rows."""
        hold = pending.hold
        tensors = {
            _VECTOR: np.asarray(trained.vector),
            **{_LOCAL + k: np.asarray(v) for k, v in trained.local_state.items()},
        }
        if trained.loss is not None:
            tensors[_LOSS] = np.array(trained.loss, np.float64)
        update = PreparedUpdate(
            pending.task.round, self._version(pending.task, "version"), pending.model_digest,
            None if hold is None else hold.index, None if hold is None else hold.head,
            bytes(safetensors.numpy.save(tensors)),
        )  # fmt: skip
        crash_point("site.before_prepared")
        self._store.preparations.keep(self._run, update)
        crash_point("site.after_prepared")
        return self._said(pending.task, update)

    def take(self, task: ProtocolMessage) -> Taken:
        """Return the stored update for a round that takes it.

        Raises:
            ProtocolError: If it is not the one that the round speaks of, or too old.
        """
        found = self._store.preparations.found(self._run)
        began, version = self._version(task, "began"), self._version(task, "version")
        if found is None or found.version != began:
            raise self._refusal("an update that waits here, once", "one that was given, was dropped or never was")
        steps = version - began
        if not 0 <= steps <= self._limit:
            raise self._refusal(f"an update that the model left at most {self._limit} steps behind", f"{steps} steps")
        tensors = safetensors.numpy.load(found.state)
        loss = float(tensors[_LOSS][()]) if _LOSS in tensors else None
        local = {name.removeprefix(_LOCAL): value for name, value in tensors.items() if name.startswith(_LOCAL)}
        return Taken(Trained(tensors[_VECTOR], local, loss), self._hold(found), staleness_weight(steps))

    def _hold(self, found: PreparedUpdate) -> Hold | None:
        event = self._half.charge.round_events[0]
        if found.position is None or found.head is None or event is None:
            return None
        return Hold(
            self._half.population, self._run, found.round, "update", event, found.position, found.head, reused=True
        )

    def _said(self, task: ProtocolMessage, update: PreparedUpdate) -> ProtocolMessage:
        body: dict[str, Json] = {"version": update.version, "model": update.model_digest}
        if update.position is not None:
            body |= {"charges": self._account.charges[0], "ledger_head": update.head}
        return ProtocolMessage("ready", self._half.terms.name, task.round, body)

    def _version(self, task: ProtocolMessage, key: str) -> int:
        value = task.body.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._refusal(f"a task with a {key}", "none")
        return value

    def _refusal(self, needs: str, got: str) -> ProtocolError:
        return ProtocolError.of(self._who, needs=needs, got=got,
                                hint="It is asked to prepare another one in the next round")  # fmt: skip
