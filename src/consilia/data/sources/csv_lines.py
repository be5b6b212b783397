"""The lines of a text file, checked for what no CSV parser should see: bad encoding, NUL bytes, endless lines."""

import io
from collections.abc import Iterator
from typing import BinaryIO, Final

from consilia.data.sources.faults import Faults

LONGEST_LINE: Final = 8 * 2**20  # characters; keeps a file without line ends from filling the memory


class Lines:
    """An iterator of lines that knows the number of the last one; lines with faults are recorded and left out."""

    def __init__(self, stream: BinaryIO, faults: Faults) -> None:
        # Bytes that are no UTF-8 become lone surrogates here, which `_sound` finds: so one bad line doesn't
        # hide others.
        self._text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
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
        if "\0" in line:
            self._faults.at(self.number, "text", "a NUL byte", "Export it again as CSV in UTF-8")
            return False
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError:
                hint = "Export it again in UTF-8"
                self._faults.at(self.number, "text in UTF-8", "bytes of another encoding", hint)
                return False
        return True
