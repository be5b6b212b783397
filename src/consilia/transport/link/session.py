"""One stream of one site at the hub, from its greeting to its end."""

import logging
from collections.abc import Callable

from consilia.core.errors import ProtocolError
from consilia.core.version import VERSION as CONSILIA
from consilia.core.wire import VERSION as WIRE
from consilia.transport.link.conversation import Conversation, offsets
from consilia.transport.link.packets import Hello, Reason, Refuse, Welcome, from_bytes, malformed
from consilia.transport.link.station import Board, Station

_log = logging.getLogger("consilia.hub")


class Session:
    """What a link server holds of a stream: it hands in the packets that come, and asks for those to send.

    Args:
        station: The site that the server has authenticated.
        board: What all stations share.
        wake: Called from any thread when `next` has something to give.
        close: Called from any thread, with a reason for the other end, when the hub wants the stream to end.
        changed: Called when the site has come or gone.
    """

    def __init__(
        self, station: Station, board: Board, wake: Callable[[], None], close: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._station = station
        self._board = board
        self._wake = wake
        self._close = close
        self._changed = changed
        self._talk: Conversation | None = None

    def receive(self, raw: bytes) -> None:
        """Take a packet.

        Raises:
            ProtocolError: If no site of this version and name sends it: the stream must end, with this message.
        """
        station = self._station
        packet = from_bytes(raw, who=station.who)
        greeted = False
        with station.lock:
            if self._talk is None:
                if not isinstance(packet, Hello):
                    raise malformed(station.who, "a stream that does not begin with a greeting")
                self._greet(packet)
                greeted = True
            elif self._talk is station.talk:
                self._talk.receive(packet)
            station.heard = self._board.clock()
            station.counts["up"] += len(raw)
        self._wake()
        if greeted:
            self._changed()

    def next(self) -> bytes | None:
        """Return a packet to send; None: nothing now."""
        with self._station.lock:
            if self._talk is None or self._talk is not self._station.talk:
                return None
            raw = self._talk.next()
            self._station.counts["down"] += len(raw or b"")
            return raw

    def end(self) -> None:
        """Note that the stream has ended."""
        station = self._station
        with station.lock:
            ours = self._talk is not None and self._talk is station.talk
            if ours:
                station.talk, station.absent = None, self._board.clock()
        if ours:
            _log.info("site %s is gone", station.name)
            self._changed()

    def _greet(self, hello: Hello) -> None:
        station, board, body = self._station, self._board, hello.body
        if body.get("name") != station.name:
            raise ProtocolError.of(station.who, needs=f"a greeting of {station.name}, whose certificate this is",
                                   got=f"one of {body.get('name')!r}"[:100],
                                   hint="Name the site as its certificate does")  # fmt: skip
        if body.get("wire") != WIRE:
            raise ProtocolError.of(station.who, needs=f"wire version {WIRE} (consilia {CONSILIA})",
                                   got=f"wire version {body.get('wire')!r} (consilia {body.get('consilia')!r})"[:100],
                                   hint="Install the same version of consilia at both ends")  # fmt: skip
        holds = offsets(body, station.who)
        talk = Conversation(station, board.clock, board.heartbeat)
        talk.say(Welcome({
            "consilia": CONSILIA, "wire": WIRE, "heartbeat": board.heartbeat, "limit": board.limit,
            "holds": {one.id.hex(): one.got for one in station.incoming.values()},
        }))  # fmt: skip
        with board.changed:
            letters = list(station.letters.values())
        for letter in letters:
            held = holds.pop(letter.id, 0)
            if held < letter.total or not held:
                talk.send(letter, held)
        for id in holds:
            talk.say(Refuse(id, Reason.NOT_AWAITED))
        before = station.close if station.talk is not None else None
        station.talk, station.wake, station.close = talk, self._wake, self._close
        station.known, station.since = True, board.clock()
        self._talk = talk
        if before is not None:
            before("the same site has opened a newer stream")
        _log.info("site %s is here", station.name)
