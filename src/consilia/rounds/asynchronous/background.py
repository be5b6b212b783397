"""Sites that work in the background of rounds: who was asked, what came of it in which order, who may be asked no more."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes, Gone, ProtocolMessage, Release
from consilia.core.wire import decode, encode
from consilia.plan.run_plan import RunPlan
from consilia.plan.schedule import most_added
from consilia.rounds.exchange import Traffic
from consilia.rounds.gather import Metrics, quorum
from consilia.rounds.ports import Arrival, Transport

_T = TypeVar("_T")
_LATE = "no answer before the deadline"


@dataclass(frozen=True)
class Asked:
    """What a site works on.

    Attributes:
        round: The round in which it was asked.
        version: Steps that the model had made.
        model_digest: Of that model.
    """

    round: int
    version: int
    model_digest: str


@dataclass(frozen=True)
class Came(Generic[_T]):
    """What a site's work came to.

    Attributes:
        began: Steps that the model had made when it began.
        value: What is known of it here.
        metrics: Numbers that came along.
    """

    began: int
    value: _T
    metrics: Mapping[str, object]


@dataclass
class Found(Generic[_T]):
    """What waiting for sites came to.

    Attributes:
        chosen: Whose work the round takes; empty where too few were ready.
        asked: Sites that were asked meanwhile.
        waited: Sites that were waited for.
        dropped: site -> why nothing comes of it.
        metrics: site -> what came along with its work.
        traffic: Bytes that crossed.
        reason: Why nothing is chosen.
        over: True where so few sites may still begin something that no later round can have enough.
    """

    chosen: dict[str, Came[_T]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    reason: str | None = None
    over: bool = False


class Background(Generic[_T]):
    """Who works, and who is ready.

    Args:
        plan: The checked plan.
        run: Id of the run.
        transport: Moves bytes to and from sites.
        kind: Of the task that sets a site to work.
        read: Reads what came, or says why it is of no use; None for what is late and changes nothing.

    A site that has left is not ready, and is asked again in each round. So is every site after a restart of the coordinator.
    """

    def __init__(
        self, plan: RunPlan, *, run: str, transport: Transport, kind: str,
        read: Callable[[Asked, str, Release | ProtocolMessage], Came[_T] | str | None],
    ) -> None:  # fmt: skip
        rule = plan.plan.aggregation
        self._body: dict[str, Json] = {"plan": plan.digest, "run": run}
        self._transport = transport
        self._kind = kind
        self._read = read
        self._names = tuple(sorted(terms.name for terms in plan.sites))
        self._size = most_added(rule, plan.schedule)
        self._least = plan.secure.fewest if plan.secure is not None else quorum(rule.quorum, self._size)
        self._limit = rule.max_staleness
        self._timeout = rule.deadline_seconds
        self._busy: dict[str, Asked] = {}
        self._ready: dict[str, Came[_T]] = {}  # in order of coming
        self._spent: set[str] = set()
        self._version = 0
        self._found: Found[_T] = Found()  # what comes during an exchange counts with the next round

    def wait(self, number: int, payload: bytes, counted: Mapping[str, int], version: int) -> Found[_T]:
        """Set idle sites to work, and wait until enough are ready; those that came first are chosen.

        Args:
            number: The round.
            payload: The model as it is sent.
            counted: site -> last round in which its answer counted.
            version: Steps that the model has made.
        """
        found, self._version = self._found, version
        self._ready = {site: came for site, came in self._ready.items() if self._fresh(came)}
        self._ask(Asked(number, version, digest_bytes(payload)), payload, counted)
        found.waited = sorted({*self._busy, *self._ready})
        self._listen(self._size)
        chosen = list(self._ready)[: self._size]
        if len(chosen) < self._least:
            found.reason = f"{len(chosen)} of {self._size} ready; {self._least} needed"
            found.over = len(self._names) - len(self._spent) < self._least
        else:
            found.chosen = {site: self._ready.pop(site) for site in chosen}
        self._found = Found()
        return found

    def settle(self) -> Sequence[str]:
        """Wait for sites that still work; return those that can be asked something else now."""
        self._listen(len(self._names) + 1)
        return [site for site in self._names if self._found.dropped.get(site) != _LATE]

    def take(self, event: Arrival | Gone) -> bool:
        """Take what comes from a site that works; return False for what is nothing of that kind.

        What is late or comes twice changes nothing.
        """
        working = self._busy.get(event.site)
        if isinstance(event, Gone):
            if working is not None:
                self._lose(event.site, event.reason)
            return working is not None
        try:
            item = decode(event.frame, who=f"coordinator, from {event.site}")
        except ProtocolError:
            if working is not None:
                self._lose(event.site, "sent bytes that are no message")
            return working is not None
        if working is None:
            return isinstance(item, ProtocolMessage) and item.kind == "ready"
        self._answered(event.site, working, item, event.frame)
        return True

    def _answered(self, site: str, working: Asked, item: Release | ProtocolMessage, frame: Bytes) -> None:
        self._found.traffic.up += len(frame)
        if item.site != site or item.round != working.round:
            return
        if isinstance(item, ProtocolMessage) and item.kind in ("refused", "failed"):
            error = str(item.body.get("error", "no reason given"))[:64]
            if error == "BudgetExceeded":
                self._spent.add(site)
            self._lose(site, f"{item.kind}: {error}")
            return
        came = self._read(working, site, item)
        if isinstance(came, Came) and not self._fresh(came):
            came = f"began {self._version - came.began} steps ago, more than {self._limit}"
        if isinstance(came, str):
            self._lose(site, came)
        elif came is not None:
            del self._busy[site]
            self._ready[site] = came
            self._found.metrics[site] = dict(came.metrics)

    def _fresh(self, came: Came[_T]) -> bool:
        # Below 0: of a step that was taken back since.
        return 0 <= self._version - came.began <= self._limit

    def _ask(self, what: Asked, payload: bytes, counted: Mapping[str, int]) -> None:
        for site in self._names:
            if site in self._busy or site in self._ready or site in self._spent:
                continue
            body: dict[str, Json] = {**self._body, "version": what.version, "counted": counted.get(site, 0)}
            frame = encode(ProtocolMessage(self._kind, site, what.round, body, payload))
            self._found.traffic.down += len(frame)
            self._found.asked.append(site)
            self._busy[site] = what
            self._transport.send(site, frame)

    def _listen(self, enough: int) -> None:
        """Take what comes until so many are ready, nobody is left to wait for, or the round's time is up."""
        if len(self._ready) >= enough or not self._busy:
            return
        for event in self._transport.events(self._timeout, frozenset(self._busy)):
            self.take(event)
            if len(self._ready) >= enough:
                return
        # What did not come in time never comes: these are asked again, and say at once what waits there by then.
        for site in tuple(self._busy):
            self._lose(site, _LATE)

    def _lose(self, site: str, reason: str) -> None:
        del self._busy[site]
        self._found.dropped[site] = reason
