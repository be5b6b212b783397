"""A site's messages while its streams come and go: received, remembered, handled one at a time, answered."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor

from consilia.core.errors import ProtocolError, StoreError
from consilia.core.update import Bytes
from consilia.store.crash import crash_point
from consilia.transport.link.conversation import Conversation, Verdict
from consilia.transport.link.letter import Letter
from consilia.transport.link.pace import MOST
from consilia.transport.link.packets import NO_REPLY, Begin, Reason, Refuse
from consilia.transport.link.ports import Inbox
from consilia.transport.link.spool import Incoming, Spool

_log = logging.getLogger("consilia.courier")
_MOST_HELD = 16  # messages at a time


class Desk:
    """What a courier does with messages. Its methods are called from the event loop's thread.

    Args:
        name: The site.
        inbox: Remembers messages; called from the worker thread alone.
        handle: Answers a frame; called from the worker thread alone.
        leaves: Called from the worker thread before the first byte of an answer leaves, with the id of the message that it
            answers and the frame.
        spool: Where large messages are kept.
        limit: Bytes of the largest message, either way.

    Guarantees:
        A message is remembered before it is handled, its answer before it is sent. The same message again is answered by the
        same bytes and not handled again; other bytes under its id are refused.
    """

    def __init__(
        self, name: str, inbox: Inbox, handle: Callable[[Bytes], bytes], leaves: Callable[[bytes, bytes], None],
        spool: Spool, limit: int,
    ) -> None:  # fmt: skip
        self.who = f"site {name}"
        self.spool = spool
        self.incoming: dict[bytes, Incoming] = {}
        self.talk: Conversation | None = None
        self.wake = asyncio.Event()
        self._inbox = inbox
        self._handle = handle
        self._leaves = leaves
        self._limit = limit
        self._held: dict[bytes, tuple[bytes, int]] = {}  # received, and their answers not delivered: digest and size
        self._answers: dict[bytes, Letter] = {}  # not confirmed yet, by the message that they answer
        self._leaving: dict[bytes, Letter] = {}  # answers whose last byte has not been handed to a stream
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="courier")
        self._jobs: set[asyncio.Task[None]] = set()

    @property
    def holds(self) -> dict[str, int]:
        """How many bytes of which message are here, for the greeting."""
        parts = {one.id.hex(): one.got for one in self.incoming.values()}
        return parts | {id.hex(): size for id, (_, size) in self._held.items()}

    def greeted(self, talk: Conversation, holds: Mapping[bytes, int]) -> None:
        """Go on over a new stream, with answers of which the coordinator holds so many bytes."""
        self.talk = talk
        for letter in self._answers.values():
            talk.send(letter, holds.get(letter.id, 0))
        self.wake.set()

    def share(self) -> int:
        """Let as much be under way as the line takes: a site has one stream."""
        return MOST

    def judge(self, begin: Begin) -> Verdict:
        """Take a message unless it is here already, or is none."""
        if begin.reply != NO_REPLY or len(self.incoming) + len(self._held) >= _MOST_HELD:
            return Reason.NOT_AWAITED
        if begin.total > self._limit:
            return Reason.TOO_LARGE
        held = self._held.get(begin.id)
        if held is None:
            if len(begin.piece) < begin.total:
                self._start(self._recall(begin.id, begin.digest))
            return "take"
        return "held" if held[0] == begin.digest else Reason.OTHER_BYTES

    def arrived(self, incoming: Incoming, frame: Bytes) -> None:
        """Have the worker answer a message."""
        self._held[incoming.id] = (incoming.digest, incoming.total)
        self._start(self._answer(incoming.id, incoming.digest, frame))

    def no_space(self, begin: Begin | Incoming) -> None:
        """Note that the site's disk is full; the coordinator is told by the conversation."""
        _log.error("no disk space for a message of %d bytes", begin.total)

    def delivered(self, letter: Letter) -> None:
        """Forget an answer that the coordinator has."""
        self._held.pop(letter.reply, None)
        self._answers.pop(letter.reply, None)
        if self._leaving.pop(letter.id, None) is not None:  # confirmed before this end noticed that it had gone out
            crash_point("courier.sent")

    def refused(self, id: bytes, reason: Reason) -> None:
        """Forget an answer that the coordinator does not take, or a message that it no longer awaits an answer to."""
        self._held.pop(id, None)
        part = self.incoming.pop(id, None)
        if part is not None:
            part.drop()
        for letter in [one for one in self._answers.values() if one.id == id]:
            del self._answers[letter.reply]
            self._held.pop(letter.reply, None)
            self._leaving.pop(id, None)
            _log.warning("the coordinator did not take an answer: %s", reason.name.lower().replace("_", " "))
            if reason is Reason.DAMAGED and self.talk is not None:
                self.talk.say(Refuse(letter.reply, reason))

    def note_sent(self) -> None:
        """Note that a packet has been handed to the stream."""
        for letter in [one for one in self._leaving.values() if one.sent == one.total]:
            del self._leaving[letter.id]
            crash_point("courier.sent")

    async def close(self) -> None:
        """Wait for what is being handled; its answer is remembered and not sent."""
        self._held.clear()
        for part in self.incoming.values():
            part.drop()
        await asyncio.gather(*self._jobs)
        self._worker.shutdown()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        job = asyncio.get_running_loop().create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _recall(self, id: bytes, digest: bytes) -> None:
        """Answer a message whose answer is kept before all of it has come again: over a slow line that may take an hour."""
        letter = await asyncio.get_running_loop().run_in_executor(self._worker, self._kept, id, digest)
        part = self.incoming.get(id)
        if letter is not None and part is not None and self.talk is not None:
            self._held[id] = (digest, part.total)
            self.talk.spare(part)
            self._send(id, letter)

    def _kept(self, id: bytes, digest: bytes) -> Letter | None:
        try:
            answer = self._inbox.seen(id, digest)
            if answer is None:
                return None
            self._leaves(id, answer)
            return Letter.answer(id, answer)
        except Exception:  # said when the message is handled
            return None

    def _send(self, id: bytes, letter: Letter) -> None:
        self._answers[id] = self._leaving[letter.id] = letter
        if self.talk is not None:
            self.talk.send(letter)
        self.wake.set()

    async def _answer(self, id: bytes, digest: bytes, frame: Bytes) -> None:
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._worker, self._work, id, digest, frame)
        if result is None or id not in self._held:
            return
        if isinstance(result, Letter):
            return self._send(id, result)
        del self._held[id]
        if self.talk is not None:
            self.talk.say(Refuse(id, result))
        return self.wake.set()

    def _work(self, id: bytes, digest: bytes, frame: Bytes) -> Letter | Reason | None:
        crash_point("courier.received")
        if id not in self._held:
            return None
        try:
            answer = self._inbox.seen(id, digest)
        except ProtocolError as error:
            _log.warning("%s", error)
            return Reason.OTHER_BYTES
        except Exception as error:
            return self._failed(error)
        try:
            if answer is None:
                self._inbox.begin(id, digest)
                crash_point("courier.begun")
                answer = self._handle(frame)
                crash_point("courier.handled")
                self._inbox.keep(id, answer)
                crash_point("courier.kept")
            self._leaves(id, answer)
            return Letter.answer(id, answer)
        except Exception as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> Reason:
        # Only that it failed leaves the site, and only the class of an error that may quote rows is logged.
        _log.error(
            "a message could not be answered: %s", error if isinstance(error, StoreError) else type(error).__name__
        )
        return Reason.FAILED
