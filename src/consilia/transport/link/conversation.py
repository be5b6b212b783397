"""One stream's talk, without input or output: packets in, packets out, the same at both ends.

Each end sends its messages in pieces within a window, confirms what it receives, and refuses what it cannot take. What a
message means to an end is the business of its `Owner`, which also keeps what must outlive the stream.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from consilia.core.update import Bytes
from consilia.rounds.ports import Clock
from consilia.transport.link.letter import Letter
from consilia.transport.link.pace import LEAST, Pace
from consilia.transport.link.packets import (
    MAX_PIECE,
    Beat,
    Begin,
    Done,
    Have,
    Hello,
    More,
    Packet,
    Reason,
    Refuse,
    Welcome,
    malformed,
    to_bytes,
)  # fmt: skip
from consilia.transport.link.spool import Incoming, Spool

_MOST_CONTROL = 10_000  # packets that wait for an end to read them
_MOST_DAMAGED = 3  # a message that comes damaged so often is given up

Verdict = Literal["take", "held"] | Reason


class Owner(Protocol):
    """What an end makes of the messages of its streams.

    Attributes:
        who: Names this end, for errors.
        spool: Where large messages are kept.
        incoming: Messages that have come in part, by their ids.
    """

    who: str
    spool: Spool
    incoming: dict[bytes, Incoming]

    def share(self) -> int:
        """Return how many bytes may be under way in each direction of a stream, so that all streams fit into memory."""
        ...

    def judge(self, begin: Begin) -> Verdict:
        """Say of a message whether to take it, that it is here already, or why not."""
        ...

    def arrived(self, incoming: Incoming, frame: Bytes) -> None:
        """Take a message that has come whole."""
        ...

    def no_space(self, begin: Begin | Incoming) -> None:
        """Note that a message could not be received for want of disk space."""
        ...

    def delivered(self, letter: Letter) -> None:
        """Note that the other end has a message."""
        ...

    def refused(self, id: bytes, reason: Reason) -> None:
        """Note that the other end will not take a message, or no longer awaits it."""
        ...


@dataclass
class _Sending:
    letter: Letter
    allowed: int = LEAST  # may be under way; more when the other end says so
    first: bool = True
    times: deque[tuple[int, float, bool]] = field(default_factory=deque)  # sent up to, when, with the window full


class Conversation:
    """What is said over one stream after both ends have greeted each other.

    Args:
        owner: What this end makes of it.
        clock: Monotonic seconds.
        heartbeat: Seconds after which this end says that it is there.
    """

    def __init__(self, owner: Owner, clock: Clock, heartbeat: float) -> None:
        self._owner = owner
        self._clock = clock
        self._heartbeat = heartbeat
        self._control: deque[Packet] = deque()
        self._sending: dict[bytes, _Sending] = {}
        self._pace = Pace()
        self._spoke = clock()

    @property
    def sending(self) -> bool:
        """Whether a message is on its way out."""
        return bool(self._sending)

    def say(self, packet: Packet) -> None:
        """Send a packet before any more bytes of messages."""
        self._control.append(packet)

    def send(self, letter: Letter, held: int = 0) -> None:
        """Send a message, of which the other end holds so many bytes."""
        letter.resume(held)
        self._sending[letter.id] = _Sending(letter)

    def withdraw(self, id: bytes) -> None:
        """Stop sending a message, and tell the other end that nobody awaits its answer."""
        self._sending.pop(id, None)
        self.say(Refuse(id, Reason.NOT_AWAITED))

    def drop(self, incoming: Incoming, reason: Reason) -> None:
        """Receive no more of a message."""
        del self._owner.incoming[incoming.id]
        incoming.drop()
        self.say(Refuse(incoming.id, reason))

    def spare(self, incoming: Incoming) -> None:
        """Receive no more of a message, as if it had come whole."""
        del self._owner.incoming[incoming.id]
        incoming.drop()
        self.say(Done(incoming.id))

    def answered(self, id: bytes) -> None:
        """Stop sending a message: its answer shows that the other end had it before."""
        self._sending.pop(id, None)

    def next(self) -> bytes | None:
        """Return what to send now; None: nothing before something is received, sent or due."""
        packet = self._next()
        if packet is None:
            return None
        self._spoke = self._clock()
        return to_bytes(packet)

    def _next(self) -> Packet | None:
        if self._control:
            return self._control.popleft()
        under_way = sum(one.letter.sent - one.letter.held for one in self._sending.values())
        for one in self._sending.values():
            letter = one.letter
            window = min(self._pace.window, one.allowed, self._owner.share())
            room, piece = window - under_way, min(window // 2, MAX_PIECE)
            size = min(piece, letter.total - letter.sent)
            if not (size or one.first):
                continue
            if size > room and under_way:
                break  # messages come in the order of sending
            packet = letter.piece(size, first=one.first)
            one.first = False
            one.times.append((letter.sent, self._clock(), room - size < piece))
            return packet
        return Beat() if self._clock() - self._spoke >= self._heartbeat else None

    def receive(self, packet: Packet) -> None:
        """Take a packet of the other end.

        Raises:
            ProtocolError: If no end of this version sends it here; the stream must end.
        """
        if len(self._control) > _MOST_CONTROL:
            raise malformed(self._owner.who, "packets without end from an end that reads none")
        match packet:
            case Begin():
                self._begin(packet)
            case More(id, offset, piece):
                incoming = self._owner.incoming.get(id)
                if incoming is not None:  # else: refused or withdrawn while this was on its way
                    self._take(incoming, offset, piece)
            case Have(id, offset, window):
                self._confirmed(id, offset)
                if id in self._sending:
                    self._sending[id].allowed = max(LEAST, window)
            case Done(id):
                self._done(id)
            case Refuse(id, reason):
                self._refused(id, reason)
            case Hello() | Welcome():
                raise malformed(self._owner.who, "a second greeting")
            case Beat():
                pass

    def _begin(self, begin: Begin) -> None:
        incoming = self._owner.incoming.get(begin.id)
        if incoming is None:
            verdict = self._owner.judge(begin)
            if verdict == "held":
                return self.say(Done(begin.id))
            if isinstance(verdict, Reason):
                return self.say(Refuse(begin.id, verdict))
            if begin.offset:  # what it would go on with is gone
                return self.say(Refuse(begin.id, Reason.DAMAGED))
            try:
                incoming = Incoming(begin, self._owner.spool, self._clock())
            except OSError:
                self.say(Refuse(begin.id, Reason.NO_SPACE))
                return self._owner.no_space(begin)
            self._owner.incoming[begin.id] = incoming
        elif not incoming.matches(begin):
            raise malformed(self._owner.who, "two messages of one id")
        return self._take(incoming, begin.offset, begin.piece)

    def _take(self, incoming: Incoming, offset: int, piece: Bytes) -> None:
        owner = self._owner
        try:
            incoming.add(offset, piece, who=owner.who)
            if not incoming.whole:
                return self.say(Have(incoming.id, incoming.got, owner.share()))
            frame = incoming.finish()
        except OSError:
            self.drop(incoming, Reason.NO_SPACE)
            return owner.no_space(incoming)
        if frame is None:
            return self.drop(incoming, Reason.DAMAGED)
        del owner.incoming[incoming.id]
        self.say(Done(incoming.id))
        return owner.arrived(incoming, frame)

    def _confirmed(self, id: bytes, offset: int) -> None:
        one = self._sending.get(id)
        if one is None:
            return
        if offset > one.letter.sent:
            raise malformed(self._owner.who, "more bytes confirmed than were sent")
        one.letter.held = max(one.letter.held, offset)
        while one.times and one.times[0][0] <= offset:
            _, when, full = one.times.popleft()
            self._pace.confirmed(when, self._clock(), full=full)

    def _done(self, id: bytes) -> None:
        one = self._sending.get(id)
        if one is not None:
            if one.letter.sent == one.letter.total:
                self._confirmed(id, one.letter.total)
            del self._sending[id]
            self._owner.delivered(one.letter)

    def _refused(self, id: bytes, reason: Reason) -> None:
        one = self._sending.get(id)
        if one is not None and reason is Reason.DAMAGED and one.letter.damaged + 1 < _MOST_DAMAGED:
            one.letter.damaged += 1
            return self.send(one.letter)
        self._sending.pop(id, None)
        return self._owner.refused(id, reason)


def offsets(body: Mapping[str, object], who: str) -> dict[bytes, int]:
    """Return how many bytes of which message the other end's greeting says it holds.

    Raises:
        ProtocolError: If it says something else.
    """
    holds = body.get("holds", {})
    try:
        if isinstance(holds, dict) and all(type(count) is int and count >= 0 for count in holds.values()):
            return {bytes.fromhex(id): count for id, count in holds.items()}
    except (ValueError, TypeError):
        pass
    raise malformed(who, "a greeting that cannot be read")
