"""A site's end: dials out, stays connected, and has the site's frames answered."""

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from consilia.core.errors import ConsiliaError, ProtocolError, TransportError
from consilia.core.update import Bytes
from consilia.core.version import VERSION as CONSILIA
from consilia.core.wire import MAX_FRAME
from consilia.core.wire import VERSION as WIRE
from consilia.rounds.ports import Clock
from consilia.transport.link.conversation import Conversation, offsets
from consilia.transport.link.desk import Desk
from consilia.transport.link.packets import Hello, Welcome, from_bytes, malformed, to_bytes
from consilia.transport.link.ports import Inbox, Link, Stream
from consilia.transport.link.spool import Spool

_log = logging.getLogger("consilia.courier")
_FIRST_WAIT: Final = 0.2  # seconds before the second attempt to connect
_GREETING: Final = 30.0  # seconds in which the coordinator answers a greeting
_LOOK: Final = 0.1  # seconds between looks at the stop event
_MISSED: Final = 3  # heartbeats


class Courier:
    """Keeps a stream to the coordinator and answers what comes over it.

    Args:
        name: The site, as its certificate names it.
        links: Ways to reach the coordinator, tried in this order.
        inbox: Remembers messages over restarts.
        handle: Answers a frame, which may be a view of a file; called from a worker thread, one frame at a time.
        spool: Folder for large messages on their way.
        leaves: Called before the first byte of an answer leaves, with the id of the message it answers and the frame.
        retry_cap: Seconds: the longest wait between two attempts to connect.
        clock: Monotonic seconds.
        limit: Bytes of the largest message, either way.

    Guarantees:
        As `Desk`: remembered before handled, kept before sent, the same again for the same message.
    """

    def __init__(
        self, name: str, links: Sequence[Link], inbox: Inbox, handle: Callable[[Bytes], bytes], *, spool: Path,
        leaves: Callable[[bytes, bytes], None], retry_cap: float, clock: Clock,
        limit: int = MAX_FRAME,
    ) -> None:  # fmt: skip
        self._name = name
        self._links = links
        self._inbox = inbox
        self._handle = handle
        self._spool = Spool(spool)
        self._leaves = leaves
        self._retry_cap = retry_cap
        self._clock = clock
        self._limit = limit
        self._complained: dict[str, str] = {}

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set; a frame that is being handled then is finished, and its answer kept but not sent."""
        asyncio.run(self._main(stop))

    async def _main(self, stop: threading.Event) -> None:
        desk = Desk(self._name, self._inbox, self._handle, self._leaves, self._spool, self._limit)
        stopped = asyncio.ensure_future(_until(stop))
        _log.info("looking for the coordinator at %s", " or ".join(link.where for link in self._links))
        try:
            wait = _FIRST_WAIT
            while not stop.is_set():
                for link in self._links:
                    begun, work = self._clock(), asyncio.ensure_future(self._over(link, desk))
                    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
                    work.cancel()
                    [reached] = await asyncio.gather(work, return_exceptions=True)
                    if stop.is_set():
                        return
                    if isinstance(reached, BaseException):
                        raise reached
                    if reached:
                        # A stream that ends soon after it began is no reason to hurry to the next one.
                        wait = _FIRST_WAIT if self._clock() - begun > self._retry_cap else wait
                        break
                # Sites that lost the coordinator together should not come back together.
                await asyncio.wait({stopped}, timeout=wait * (0.5 + secrets.randbelow(1000) / 2000))
                wait = min(self._retry_cap, 2 * wait)
        finally:
            stopped.cancel()
            await desk.close()

    async def _over(self, link: Link, desk: Desk) -> bool:
        """Work over a link until it fails; False if the coordinator was not reached."""
        reached = False
        try:
            stream = await link.connect()
            try:
                async with asyncio.timeout(_GREETING):
                    talk, heartbeat = await self._greet(stream, desk)
                reached = True
                self._complained.clear()
                _log.info("connected to %s", link.where)
                await self._converse(stream, desk, talk, heartbeat)
            finally:
                desk.talk = None
                await stream.close()
        except TimeoutError:
            self._complain(link.where, f"the coordinator did not answer within {_GREETING:.0f} s.")
        except ConsiliaError as error:
            self._complain(link.where, str(error))
        return reached

    def _complain(self, where: str, what: str) -> None:
        if what != self._complained.get(where):  # once, not at every attempt
            self._complained[where] = what
            _log.warning("%s: %s Attempts go on, at most %g s apart", where, what, self._retry_cap)

    async def _greet(self, stream: Stream, desk: Desk) -> tuple[Conversation, float]:
        await stream.send(to_bytes(Hello({
            "name": self._name, "consilia": CONSILIA, "wire": WIRE, "holds": desk.holds,
        })))  # fmt: skip
        packet = from_bytes(await stream.receive(), who=desk.who)
        if not isinstance(packet, Welcome):
            raise malformed(desk.who, "no answer to its greeting")
        heartbeat = packet.body.get("heartbeat")
        if not isinstance(heartbeat, int | float) or not heartbeat > 0:
            raise malformed(desk.who, "a greeting that cannot be read")
        if packet.body.get("wire") != WIRE:
            raise ProtocolError.of(desk.who, needs=f"a coordinator of wire version {WIRE}",
                                   got=f"wire version {packet.body.get('wire')!r}"[:100],
                                   hint="Install the same version of consilia at both ends")  # fmt: skip
        talk = Conversation(desk, self._clock, heartbeat)
        desk.greeted(talk, offsets(packet.body, desk.who))
        return talk, heartbeat

    async def _converse(self, stream: Stream, desk: Desk, talk: Conversation, heartbeat: float) -> None:
        heard = self._clock()

        async def write() -> None:
            while True:
                desk.wake.clear()
                while (packet := talk.next()) is not None:
                    await stream.send(packet)
                    desk.note_sent()
                await desk.wake.wait()

        async def read() -> None:
            nonlocal heard
            while True:
                talk.receive(from_bytes(await stream.receive(), who=desk.who))
                heard = self._clock()
                desk.wake.set()

        async def watch() -> None:
            nonlocal heard
            last = self._clock()
            while True:
                await asyncio.sleep(heartbeat / 4)
                now = self._clock()
                if now - last > 2 * heartbeat:  # the process was stopped: what the coordinator said waits to be read
                    heard = now
                last = now
                if now - heard > _MISSED * heartbeat:
                    raise TransportError.of(desk.who, needs="a coordinator that answers",
                                            got=f"nothing for {now - heard:.0f} s", hint="It is tried again")  # fmt: skip
                desk.wake.set()

        tasks = [asyncio.ensure_future(task()) for task in (write, read, watch)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


async def _until(stop: threading.Event) -> None:
    while not stop.is_set():
        await asyncio.sleep(_LOOK)
