"""The lines of a text file, checked for what no CSV parser should see: bad encoding, NUL bytes, endless lines."""

import io
from collections.abc import Iterator
from typing import BinaryIO, Final, TextIO

from consilia.data.sources.faults import Faults

LONGEST_LINE: Final = 8 * 2**20  # characters; keeps a file without line ends from filling the memory


def as_text(stream: BinaryIO) -> TextIO:
    """Return the stream decoded for `Lines`; closing it closes the stream."""
    # Bytes that are no UTF-8 become lone surrogates, which `Lines` finds: so one bad line does not hide others.
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")


class Lines:
    """An iterator of lines that knows the number of the last one; lines with faults are recorded and left out."""

    def __init__(self, text: TextIO, faults: Faults) -> None:
        self._text = text
        self._faults = faults
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while line := self._text.readline(LONGEST_LINE):
            self.number += 1
            if len(line) == LONGEST_LINE and not line.endswith("\n"):
                needs, hint = f"lines of at most {LONGEST_LINE // 2**20} MiB", "Is this a CSV file?"
                self._faults.at(self.number, needs, "more", hint)
                raise StopIteration
            if self._sound(line):
                return line
        raise StopIteration

    def _sound(self, line: str) -> bool:
        hint = "Export it again as CSV in UTF-8"
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError:
                self._faults.at(self.number, "text in UTF-8", "bytes of another encoding", hint)
                return False
        if "\0" in line:
            self._faults.at(self.number, "text", "a NUL byte", hint)
            return False
        return True
