"""A message on its way out."""

import hashlib
from dataclasses import dataclass, field

from consilia.core.update import Bytes
from consilia.transport.link.packets import ID_SIZE, NO_REPLY, Begin, More
from consilia.transport.link.spool import Spool


@dataclass(eq=False)
class Letter:
    """A message on its way out, for as long as it may have to be sent again.

    Attributes:
        id: 16 bytes that no other message has.
        reply: The message that it answers; zeros: none.
        digest: SHA-256 of its bytes.
        view: Its bytes; of a large one, a view of a file.
        sent: Bytes handed to the present stream.
        held: Bytes that the other end has confirmed.
        damaged: How often it came damaged.
    """

    id: bytes
    reply: bytes
    digest: bytes
    view: memoryview = field(repr=False)
    sent: int = 0
    held: int = 0
    damaged: int = 0

    @classmethod
    def task(cls, id: bytes, frame: Bytes, spool: Spool) -> "Letter":
        """Return a message that answers none.

        Raises:
            OSError: If it is large and the disk is full.
        """
        return cls(id, NO_REPLY, hashlib.sha256(frame).digest(), memoryview(spool.put(frame)))

    @classmethod
    def answer(cls, to: bytes, frame: Bytes) -> "Letter":
        """Return the answer to a message; its id follows from both, so a site that restarts goes on with the same one.

        It stays in memory: a site made it there, and has one at a time.
        """
        digest = hashlib.sha256(frame).digest()
        id = hashlib.sha256(b"consilia answer" + to + digest).digest()[:ID_SIZE]
        return cls(id, to, digest, memoryview(frame))

    @property
    def total(self) -> int:
        """Its size in bytes."""
        return len(self.view)

    def resume(self, held: int) -> None:
        """Go on, on a new stream, after what the other end holds."""
        self.sent = self.held = min(held, self.total)

    def piece(self, size: int, *, first: bool) -> Begin | More:
        """Return the next packet, and count its bytes as sent.

        Args:
            size: Most bytes.
            first: Whether it is this stream's first packet of the message.
        """
        offset = self.sent
        piece = self.view[offset : offset + size]
        self.sent += len(piece)
        if first:
            return Begin(self.id, self.reply, self.total, self.digest, offset, piece)
        return More(self.id, offset, piece)
