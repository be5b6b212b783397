"""Updates gathered under masks: the coordinator learns the survivors' sum, and no single update."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from consilia.aggregate.admission import Gate
from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import PlanError, ProtocolError
from consilia.core.update import Bytes, ProtocolMessage, Release
from consilia.crypto.signing import SigningKey
from consilia.plan.run_plan import RunPlan
from consilia.plan.secure import SecureTerms
from consilia.rounds.asynchronous.cohort import Cohort
from consilia.rounds.entropy import Entropy
from consilia.rounds.exchange import Traffic, ask, exchange
from consilia.rounds.gather import Gathered, Metrics, Scored, quorum, too_few
from consilia.rounds.lanes import read_scores
from consilia.rounds.ports import Transport
from consilia.rounds.secure.sessions import session_of
from consilia.rounds.secure.shape import EVALUATION, UPDATE, shape_of, weight_and_loss
from consilia.rounds.secure.written import Written
from consilia.secagg import server, transcript
from consilia.secagg.messages import Advert, Begin, Inbox, Masked, ToSite, from_site
from consilia.secagg.params import ID_SIZE, Session
from consilia.secagg.roster import Roster
from consilia.secagg.server import Abort, Deadline, Done, Lost, Output, Received, Send, ServerState
from consilia.secagg.transcript import Entry


@dataclass(frozen=True)
class _Task:
    """What asks a site for its vector, beside what every task of a session says."""

    kind: str
    payload: bytes
    counted: Mapping[str, int]
    body: Mapping[str, Json] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)


@dataclass
class _Ended:
    """How a session ended."""

    end: Done | Abort
    metrics: Metrics
    traffic: Traffic


@dataclass
class _Run:
    """A session under way at the coordinator."""

    session: Session
    state: ServerState
    outputs: list[Output]
    metrics: Metrics = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)

    def step(self, event: server.Event) -> None:
        self.state, outputs = server.step(self.state, event)
        self.outputs += outputs


class MaskedSums:
    """Gathers updates and scores by secure aggregation.

    Args:
        plan: The checked plan.
        secure: Its secure sum.
        run: Id of the run.
        transport: Moves bytes to and from sites.
        roster: The sites' public keys.
        signing: The coordinator's key, for the transcript.
        entropy: Source of session ids.
        entries: Reads the transcript as far as it is written down: a run may be resumed, and a site may have missed some.
    """

    def __init__(
        self, plan: RunPlan, secure: SecureTerms, *, run: str, transport: Transport, roster: Roster, signing: SigningKey,
        entropy: Entropy, entries: Callable[[], Sequence[Entry]],
    ) -> None:  # fmt: skip
        self._plan = plan
        self._secure = secure
        self._run = run
        self._transport = transport
        self._roster = roster
        self._signing = signing
        self._entropy = entropy
        self._entries = Written(run, entries)
        self._told: dict[str, int] = {}
        self._names = tuple(sorted(terms.name for terms in plan.sites))
        self._timeout = plan.plan.aggregation.deadline_seconds
        self._named = plan.plan.aggregation.mode == "two-phase"  # elsewhere the schedule says who is asked
        self._last: tuple[Session, Done] | None = None

    def updates(self, number: int, asked: Sequence[str], payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Ask a round's cohort to train, and learn the sum of those who come through."""
        return self._gather(number, tuple(sorted(asked)), payload, _Task("train", payload, counted))

    def add(self, cohort: Cohort, payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Learn the sum of the updates that wait at a cohort; the model is named, and sent to nobody."""
        task = _Task("add", b"", counted, cohort.body, cohort.beside)
        return self._gather(cohort.round, cohort.names, payload, task)

    def _gather(self, number: int, cohort: tuple[str, ...], payload: bytes, task: _Task) -> Gathered:
        self._last = None
        try:
            session = self._session(UPDATE, number, cohort, payload)
        except PlanError:  # the plan was checked, so it is the schedule's draw
            why = f"{len(cohort)} sites were to be asked, too few for a secure sum"
            return Gathered([], dict.fromkeys(cohort, "too few were asked"), None, 0.0, {}, reason=why)
        ended = self._sum(session, task)
        dropped = {site: drop.reason for site, drop in sorted(ended.end.dropped.items())}
        if isinstance(ended.end, Abort):
            return Gathered([], dropped, None, 0.0, ended.metrics, traffic=ended.traffic, reason=ended.end.reason)
        names = list(ended.end.survivors)
        total, numbers = shape_of(self._plan, self._secure, UPDATE, number, len(self._names)).split(
            session.ring.center(ended.end.total)
        )
        reason = too_few(len(names), len(cohort), quorum(self._plan.plan.aggregation.quorum, len(cohort)))
        self._last = session, ended.end
        heaviest = max(terms.weight for terms in self._plan.sites)
        weight, loss = weight_and_loss(self._plan, names, numbers)
        return Gathered(
            names, {site: why for site, why in dropped.items() if site not in names}, None if reason else total, weight,
            ended.metrics, loss=loss, traffic=ended.traffic, reason=reason, factor=heaviest,
        )  # fmt: skip

    def scores(
        self, number: int, payload: bytes, counted: Mapping[str, int], of: Sequence[str] | None = None
    ) -> Scored:
        """Ask every site, or some, how a model does on its held-out rows, and learn the sums."""
        cohort = self._names if of is None else tuple(sorted(of))
        try:
            session = self._session(EVALUATION, number, cohort, payload)
        except PlanError:  # as above
            return Scored({}, None, Traffic())
        ended = self._sum(session, _Task("evaluate", payload, counted))
        if isinstance(ended.end, Abort):
            return Scored({}, None, ended.traffic)
        total = session.ring.center(ended.end.total)
        _, numbers = shape_of(self._plan, self._secure, EVALUATION, number, len(self._names)).split(total)
        return Scored({}, read_scores(numbers), ended.traffic)

    def stepped(self, model_digest: str) -> dict[str, Json] | None:
        """Sign what the last sum was and which model came of it; None where there was none."""
        if self._last is None:
            return None
        session, done = self._last
        entry = transcript.write(
            session, uploads=done.uploads, total=done.total, model_out=model_digest, previous=self._entries.head,
            coordinator=self._signing,
        )  # fmt: skip
        self._entries.add(entry)
        return entry.to_json()

    def _session(self, purpose: str, number: int, cohort: tuple[str, ...], payload: bytes) -> Session:
        return session_of(
            self._plan, self._secure, run=self._run, purpose=purpose, round_number=number,
            model_digest=digest_bytes(payload), session_id=self._entropy.stream("session", purpose, number).token(ID_SIZE),
            roster=self._roster, cohort=cohort,
        )  # fmt: skip

    def _sum(self, session: Session, task: _Task) -> _Ended:
        run = _Run(session, *server.start(session))
        while True:
            sends = {output.site: output.message for output in run.outputs if isinstance(output, Send)}
            end = next((output for output in run.outputs if isinstance(output, Done | Abort)), None)
            if end is not None:
                return _Ended(end, run.metrics, run.traffic)
            run.outputs = []
            if all(isinstance(message, Inbox) for message in sends.values()):
                self._ask_for_vectors(run, sends, task)
            else:
                self._ask(run, sends)
            if not run.outputs:
                run.step(Deadline())

    def _ask(self, run: _Run, messages: Mapping[str, ToSite]) -> None:
        """Take one step with every site that is left."""
        tasks = {}
        packed: dict[int, bytes] = {}  # most stages tell everyone the same
        lacking: list[Entry] = []
        if any(isinstance(message, Begin) for message in messages.values()) and run.session.purpose == UPDATE:
            lacking = self._entries.since(min(self._told.get(site, 0) for site in messages))
        for site, message in messages.items():
            body = {**self._body(run.session), "stage": message.STAGE}
            if isinstance(message, Begin) and self._named:
                body["cohort"] = list(run.session.cohort)
            if isinstance(message, Begin) and run.session.purpose == UPDATE:
                behind = self._entries.count - self._told.get(site, 0)
                body["entries"] = [entry.to_json() for entry in lacking[len(lacking) - behind :]]
            if id(message) not in packed:
                packed[id(message)] = message.to_bytes()
            tasks[site] = ProtocolMessage("sum", site, run.session.round, body, packed[id(message)])

        def accept(site: str, item: Release | ProtocolMessage) -> None:
            event = self._read(run.session, site, item)
            if event is not None:
                run.step(event)

        run.traffic.add(exchange(
            self._transport, tasks, accept=accept, gone=lambda site, why: run.step(Lost(site, why)), timeout=self._timeout
        ))  # fmt: skip

    def _read(self, session: Session, site: str, item: Release | ProtocolMessage) -> Received | Lost | None:
        """Return what an answer to a step is; None for one that came late or twice: it costs its site nothing."""
        if isinstance(item, Release) or item.round != session.round or item.site != site:
            return None
        if item.kind != "sum":
            return Lost(site, f"{item.kind}: {str(item.body.get('error'))[:64]}")
        if item.body.get("session") != session.session_id.hex():
            return None
        try:
            message = from_site(str(item.body.get("stage")), item.payload, who=site)
        except ProtocolError as error:
            return Lost(site, f"sent {error.problems[0].got}")
        if isinstance(message, Advert) and session.purpose == UPDATE:
            self._told[site] = self._entries.count  # it has checked what came along, or it would have refused
        return Received(site, message)

    def _ask_for_vectors(self, run: _Run, inboxes: Mapping[str, ToSite], task: _Task) -> None:
        session = run.session
        expected = session.session_id.hex()

        def take(upload: Bytes, site: str) -> None:
            run.step(Received(site, Masked(upload)))

        gate = Gate(session.round, self._plan.digest, session.model_digest, frozenset(inboxes), take)
        beside: dict[str, dict[str, Json]] = {
            site: {"inbox": base64.b64encode(inbox.to_bytes()).decode(), **task.beside.get(site, {})}
            for site, inbox in inboxes.items()
        }
        run.traffic.add(ask(
            self._transport, gate, kind=task.kind, body={**self._body(session), **task.body}, counted=task.counted,
            payload=task.payload, timeout=self._timeout, beside=beside,
        ))  # fmt: skip
        run.metrics = {site: told for site, told in gate.metrics.items() if told.get("session") == expected}
        for site, why in gate.dropped.items():
            run.step(Lost(site, why))

    def _body(self, session: Session) -> dict[str, Json]:
        return {
            "plan": self._plan.digest, "run": self._run, "purpose": session.purpose, "model": session.model_digest,
            "session": session.session_id.hex(),
        }  # fmt: skip
