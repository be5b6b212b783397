"""The coordinator's end of all streams: a `Transport` whose frames reach sites that come and go."""

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from consilia.core.update import Gone
from consilia.core.wire import MAX_FRAME
from consilia.rounds.ports import Arrival, Clock
from consilia.transport.link.letter import Letter
from consilia.transport.link.packets import ID_SIZE
from consilia.transport.link.session import Session
from consilia.transport.link.spool import Spool, require_size
from consilia.transport.link.station import Board, Station

_log = logging.getLogger("consilia.hub")
_LATE = "no answer before the deadline"


@dataclass(frozen=True)
class Seen:
    """A site, as the hub sees it.

    Attributes:
        connected: Whether a stream is there.
        since: Seconds since it came, or since it went.
        heard: Seconds since its last packet.
        counts: up, down (bytes), late, repeated, contradicting (answers).
    """

    connected: bool
    since: float
    heard: float
    counts: dict[str, int]


class Hub:
    """Delivers frames to sites that have a stream, or will have one soon.

    Args:
        spool: Folder for large messages on their way.
        heartbeat: Seconds between signs of life; a site that is away for three of these is gone.
        upload_floor: Bytes a second: an answer on its way at the deadline is waited for while it is no slower.
        clock: Monotonic seconds.
        limit: Bytes of the largest frame, either way.
        on_change: Called, from any thread, when a site has come or gone.

    Guarantees:
        A frame is sent until it is answered, given up or its round is over, over as many streams as it takes, and only
        its first answer is handed over, once. An answer to a frame of an earlier round never is.
    """

    def __init__(
        self, spool: Path, *, heartbeat: float, upload_floor: float, clock: Clock, limit: int = MAX_FRAME,
        on_change: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._board = Board(Spool(spool), clock, heartbeat, upload_floor, limit)
        self._on_change = on_change
        self._begun = clock()
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._watching, name="hub", daemon=True)
        self._watch.start()

    def attach(self, site: str, wake: Callable[[], None], close: Callable[[str], None]) -> Session:
        """Take on a stream of a site whose name the link server has authenticated.

        Args:
            site: Its name.
            wake: Called from any thread when the session has a packet to send.
            close: Called from any thread, with a reason for the other end, when the stream is to end.
        """
        return Session(self._station(site), self._board, wake, close, self._change)

    def send(self, site: str, frame: bytes) -> None:
        """Queue a frame for a site.

        Raises:
            ProtocolError: If it is over the limit.
        """
        require_size(len(frame), self._board.limit, "the coordinator")
        try:
            letter = Letter.task(secrets.token_bytes(ID_SIZE), frame, self._board.spool)
        except OSError:
            _log.error("no disk space for a message of %d bytes to site %s", len(frame), site)
            with self._board.changed:
                self._board.results.append(
                    Gone(site, f"the coordinator has no disk space for a message of {len(frame)} bytes")
                )
            return
        self._station(site).send(letter)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Yield answers as they come, until the sites that are waited for have answered, are gone, or are too late.

        Args:
            timeout: Seconds.
            of: The sites that are waited for; None: all that were sent to.
        """
        end = self._board.clock() + timeout
        while True:
            if (event := self._take()) is not None:
                yield event
                continue
            hopeless = self._hopeless(end, of)
            for station, id, why in hopeless:
                if station.give_up(id):
                    yield Gone(station.name, why)
            if not hopeless and not self._wait(end, of):
                return

    def give_up(self, reason: str) -> None:
        """Give up all that no answer has come to; whoever waits for it is told so at once. Called from any thread."""
        for station in self._all():
            for id in list(station.letters):
                if station.give_up(id):
                    with self._board.changed:
                        self._board.results.append(Gone(station.name, reason))
                        self._board.changed.notify_all()

    def sites(self) -> dict[str, Seen]:
        """Return every site that has been connected or sent to."""
        now = self._board.clock()
        return {
            one.name: Seen(one.talk is not None, now - (one.since if one.talk is not None else one.absent),
                           now - one.heard, dict(one.counts))
            for one in self._all()
        }  # fmt: skip

    def close(self) -> None:
        """End all streams; frames without an answer are given up."""
        self._closed.set()
        self._watch.join()
        for station in self._all():
            if station.talk is not None:
                station.close("the coordinator is stopping")
        with self._board.changed:
            self._board.changed.notify_all()

    def _take(self) -> Arrival | Gone | None:
        with self._board.changed:
            return self._board.results.popleft() if self._board.results else None

    def _hopeless(self, end: float, of: Collection[str] | None) -> list[tuple[Station, bytes, str]]:
        """Return the frames that no answer will come to in time, and why."""
        now, found = self._board.clock(), []
        with self._board.changed:
            for station in self._among(of):
                for id in station.letters:
                    why = "the coordinator is stopping" if self._closed.is_set() else station.reason_gone(now)
                    if why is None and now >= end and not station.arriving(id, now):
                        why = _LATE
                    if why is not None:
                        found.append((station, id, why))
        return found

    def _wait(self, end: float, of: Collection[str] | None) -> bool:
        """Wait for something to happen; False: there is nothing to wait for."""
        left = end - self._board.clock()
        with self._board.changed:
            if not self._board.results:
                if not any(station.letters for station in self._among(of)):
                    return False
                self._board.changed.wait(min(self._board.heartbeat / 4, left if left > 0 else 0.05))
        return True

    def _station(self, site: str) -> Station:
        with self._board.changed:
            if site not in self._board.stations:
                self._board.stations[site] = Station(site, self._board, self._begun)
            return self._board.stations[site]

    def _all(self) -> list[Station]:
        with self._board.changed:
            return list(self._board.stations.values())

    def _among(self, of: Collection[str] | None) -> list[Station]:
        return [station for station in self._all() if of is None or station.name in of]

    def _change(self) -> None:
        with self._board.changed:
            self._board.changed.notify_all()
        if self._on_change is not None:
            self._on_change()

    def _watching(self) -> None:
        """Let heartbeats go out and end silent streams."""
        clock, tick = self._board.clock, self._board.heartbeat / 4
        last = clock()
        while not self._closed.wait(tick):
            now = clock()
            # This process may have been stopped meanwhile; what sites said is waiting to be read.
            stopped = now - last - tick if now - last > 2 * self._board.heartbeat else 0.0
            last = now
            for station in self._all():
                with station.lock:
                    station.heard = min(now, station.heard + stopped)
                    station.absent = min(now, station.absent + stopped)
                if station.end_if_silent(now):
                    self._change()
                elif station.talk is not None:
                    station.wake()
            with self._board.changed:
                self._board.changed.notify_all()
