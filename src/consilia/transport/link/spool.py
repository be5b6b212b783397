"""Messages on their way: small ones in memory, large ones in files that no process death leaves behind."""

import hashlib
import mmap
import os
import tempfile
from pathlib import Path
from typing import Final

from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes
from consilia.transport.link.packets import Begin, malformed

LARGE: Final = 1 << 20
_PIECE = 1 << 20


class Spool:
    """A folder for messages that are too large for memory.

    Args:
        folder: Made if missing. Its files have no names: what a process has open is gone when it ends, however it ends.

    Raises:
        OSError: From any method, if the disk is full or the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder

    def put(self, frame: Bytes) -> Bytes:
        """Return the same bytes; large ones are a view of a file from then on, so the caller's copy may go."""
        if len(frame) <= LARGE:
            return frame
        view = memoryview(frame)
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            for place in range(0, len(view), _PIECE):
                write(file.fileno(), view[place : place + _PIECE], place)
            return mapped(file.fileno(), len(view))

    def file(self) -> int:
        """Return the descriptor of a fresh file, for the caller to close."""
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            return os.dup(file.fileno())


class Incoming:
    """A message on its way in: its bytes come in order, are hashed as they come, and outlive the stream they came over.

    Args:
        begin: What the sender says about it.
        spool: Where a large one is kept.
        now: Monotonic seconds.

    Attributes:
        got: Bytes that have come.
        began: When the first of them came.
    """

    def __init__(self, begin: Begin, spool: Spool, now: float) -> None:
        self.id, self.reply, self.total, self.digest = begin.id, begin.reply, begin.total, begin.digest
        self.got = 0
        self.began = now
        self._hash = hashlib.sha256()
        self._pieces: list[Bytes] = []
        self._file = spool.file() if self.total > LARGE else None

    @property
    def whole(self) -> bool:
        """Whether all its bytes have come."""
        return self.got == self.total

    def matches(self, begin: Begin) -> bool:
        """Whether a sender goes on with these same bytes."""
        return (self.reply, self.total, self.digest) == (begin.reply, begin.total, begin.digest)

    def add(self, offset: int, piece: Bytes, *, who: str) -> None:
        """Take the next bytes; those that had come before are left out.

        Raises:
            ProtocolError: If bytes in between are missing, or there are more than the sender said.
            OSError: If the disk is full.
        """
        if offset > self.got or offset + len(piece) > self.total:
            raise malformed(who, f"bytes {offset} to {offset + len(piece)} of {self.total} after the first {self.got}")
        piece = memoryview(piece)[self.got - offset :]
        if self._file is None:
            self._pieces.append(piece)
        else:
            write(self._file, piece, self.got)
        self._hash.update(piece)
        self.got += len(piece)

    def finish(self) -> Bytes | None:
        """Return the message; None if its bytes are not those that the sender hashed."""
        try:
            if self._hash.digest() != self.digest:
                return None
            if self._file is not None:
                return mapped(self._file, self.total)
            return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        finally:
            self.drop()

    def drop(self) -> None:
        """Forget it, and free its file."""
        self._pieces = []
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.drop()


def write(file: int, piece: Bytes, place: int) -> None:
    """Write all of `piece` at `place`.

    Raises:
        OSError: If the disk is full.
    """
    view = memoryview(piece)
    while view:
        count = os.pwrite(file, view, place)
        view, place = view[count:], place + count


def mapped(file: int, size: int) -> memoryview:
    """Return a file's bytes as a view that keeps them until it is collected; the descriptor may be closed."""
    return memoryview(mmap.mmap(file, size, access=mmap.ACCESS_READ))


def require_size(total: int, limit: int, who: str) -> None:
    """Check a frame before it is sent.

    Raises:
        ProtocolError: If it is over the limit.
    """
    if total > limit:
        raise ProtocolError.of(who, needs=f"frames of at most {limit} bytes", got=f"{total} bytes",
                               hint="Use a smaller model, or send fewer of its coordinates")  # fmt: skip
