"""One site, as the hub knows it: what it was sent and has not answered, what is coming from it, and whether it is there."""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from consilia.core.update import Bytes, Gone
from consilia.rounds.ports import Arrival, Clock
from consilia.transport.link.conversation import Conversation, Verdict
from consilia.transport.link.letter import Letter
from consilia.transport.link.pace import LEAST, MOST
from consilia.transport.link.packets import Begin, Reason
from consilia.transport.link.spool import Incoming, Spool

_log = logging.getLogger("consilia.hub")
_REMEMBERED = 64  # answered messages of a site whose answers are known again; a site has 16 at a time
_MISSED = 3  # heartbeats
_UNDER_WAY = 1 << 24  # bytes of all sites in each direction; beyond that a site has 64 kB
_WHY = {
    Reason.TOO_LARGE: "the message is larger than it takes",
    Reason.DAMAGED: "messages were damaged on their way, several times over",
    Reason.NO_SPACE: "it has no disk space for the message",
    Reason.OTHER_BYTES: "it has seen other bytes under the same message id",
    Reason.NOT_AWAITED: "it does not take the message",
    Reason.FAILED: "it failed on the message",
}


@dataclass
class Board:
    """What the stations of a hub share.

    Attributes:
        spool: Where large messages are kept.
        clock: Monotonic seconds.
        heartbeat: Seconds.
        floor: Bytes a second, below which an answer is not waited for after the deadline.
        limit: Bytes of the largest answer.
        changed: Guards `results` and every station's `letters`; notified when either changes. Taken after a station's lock.
        results: What came, for the coordinator to take.
        stations: The sites by name.
    """

    spool: Spool
    clock: Clock
    heartbeat: float
    floor: float
    limit: int
    changed: threading.Condition = field(default_factory=threading.Condition)
    results: deque[Arrival | Gone] = field(default_factory=deque)
    stations: "dict[str, Station]" = field(default_factory=dict)


class Station:
    """What the hub keeps of one site while its streams come and go.

    Attributes:
        lock: Guards the conversation and what comes in.
        letters: Messages without an answer, in the order of sending.
        incoming: Answers that have come in part.
        talk: Over the present stream, once both ends have greeted each other; None while there is none.
        wake: Tells the present stream that there is something to send.
        close: Ends the present stream, with a reason for the other end.
        heard: When the last packet came.
        absent: Since when no stream is there.
        known: Whether it has ever been connected.
        counts: up, down (bytes), late, repeated, contradicting (answers).
    """

    def __init__(self, name: str, board: Board, since: float) -> None:
        self.name = name
        self.who = f"coordinator, from {name}"
        self.spool = board.spool
        self.lock = threading.RLock()
        self.letters: dict[bytes, Letter] = {}
        self.incoming: dict[bytes, Incoming] = {}
        self.talk: Conversation | None = None
        self.wake: Callable[[], None] = _nothing
        self.close: Callable[[str], None] = _nothing
        self.heard = self.absent = self.since = since
        self.known = False
        self.counts: Counter[str] = Counter()
        self._board = board
        self._began: dict[bytes, float] = {}
        self._answered: dict[bytes, bytes] = {}

    def send(self, letter: Letter) -> None:
        """Send a message now, or when the site is there."""
        with self.lock:
            with self._board.changed:
                self.letters[letter.id] = letter
            if self.talk is not None:
                self.talk.send(letter)
        self.wake()

    def give_up(self, id: bytes) -> bool:
        """Withdraw a message; False if it is answered already."""
        with self.lock:
            with self._board.changed:
                letter = self.letters.pop(id, None)
            self._began.pop(id, None)
            if letter is None:
                return False
            if self.talk is not None:
                self.talk.withdraw(id)
            self._drop_answers(id)
        self.wake()
        return True

    def reason_gone(self, now: float) -> str | None:
        """Return why the site will not answer, if it has been away for too long."""
        if self.talk is not None or now - self.absent < _MISSED * self._board.heartbeat:
            return None
        return f"connection lost {now - self.absent:.0f} s ago" if self.known else "not connected"

    def end_if_silent(self, now: float) -> bool:
        """End the stream if nothing has come over it for too long, and return whether it was so."""
        with self.lock:
            if self.talk is None or now - self.heard < _MISSED * self._board.heartbeat:
                return False
            self.talk, self.absent = None, self.heard
        _log.warning("site %s has been silent for %.0f s", self.name, now - self.heard)
        self.close(f"nothing was heard of the site for {now - self.heard:.0f} s")
        return True

    def arriving(self, id: bytes, now: float) -> bool:
        """Whether the answer to a message is coming fast enough to be waited for after the deadline."""
        began, floor = self._began.get(id), self._board.floor
        coming = [one for one in list(self.incoming.values()) if one.reply == id]
        if began is None or not coming:
            return False
        total, got = max((one.total, one.got) for one in coming)
        # A packet is noticed when it is whole, so the first heartbeat is not held against it.
        return now - began < total / floor and got >= floor * (now - began - self._board.heartbeat)

    def share(self) -> int:
        """Return this site's part of what may be under way at once."""
        busy = sum(one.busy for one in list(self._board.stations.values()))
        return min(MOST, max(LEAST, _UNDER_WAY // max(1, busy)))

    @property
    def busy(self) -> bool:
        """Whether a message is coming or going."""
        return bool(self.incoming) or (self.talk is not None and self.talk.sending)

    def judge(self, begin: Begin) -> Verdict:
        """Take the answer to a message that waits for one."""
        if begin.reply in self.letters:
            if begin.total > self._board.limit:
                self._fail(
                    begin.reply, f"its answer has {begin.total} bytes, more than the limit of {self._board.limit}"
                )
                return Reason.TOO_LARGE
            self._drop_answers(
                begin.reply
            )  # begun by a process that has died since: a message has one answer under way
            self._began.setdefault(begin.reply, self._board.clock())
            return "take"
        digest = self._answered.get(begin.reply)
        if digest is None:
            self._count("late", "an answer to a message that is no longer awaited")
            return Reason.NOT_AWAITED
        if digest == begin.digest:
            self.counts["repeated"] += 1
            return "held"
        self._count("contradicting", "another answer to a message that it has answered")
        return Reason.OTHER_BYTES

    def arrived(self, incoming: Incoming, frame: Bytes) -> None:
        """Hand an answer to the coordinator."""
        with self._board.changed:
            if self.letters.pop(incoming.reply, None) is None:
                return
            self._answered[incoming.reply] = incoming.digest
            if len(self._answered) > _REMEMBERED:
                del self._answered[next(iter(self._answered))]
            self._board.results.append(Arrival(self.name, frame))
            self._board.changed.notify_all()
        self._began.pop(incoming.reply, None)
        if self.talk is not None:
            self.talk.answered(incoming.reply)
        self._drop_answers(incoming.reply)

    def no_space(self, begin: Begin | Incoming) -> None:
        """Note that the coordinator's disk is full."""
        self._fail(begin.reply, f"the coordinator has no disk space for its answer of {begin.total} bytes")

    def delivered(self, letter: Letter) -> None:
        """Note nothing: a message is kept until it is answered."""

    def refused(self, id: bytes, reason: Reason) -> None:
        """Note that the site will not answer a message."""
        self._fail(id, _WHY[reason])

    def _fail(self, id: bytes, why: str) -> None:
        with self._board.changed:
            if self.letters.pop(id, None) is not None:
                self._board.results.append(Gone(self.name, why))
                self._board.changed.notify_all()
        self._began.pop(id, None)

    def _drop_answers(self, id: bytes) -> None:
        for one in [one for one in self.incoming.values() if one.reply == id]:
            if self.talk is not None:
                self.talk.drop(one, Reason.NOT_AWAITED)
            else:
                del self.incoming[one.id]
                one.drop()

    def _count(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        _log.warning("site %s sent %s: dropped (%d so far)", self.name, what, self.counts[kind])


def _nothing(*_: object) -> None:
    pass
