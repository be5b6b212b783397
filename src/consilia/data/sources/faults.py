"""Counting faults of a file without quoting the file: a message may end in a log, a cell may be a patient's."""

from typing import Final

from consilia.core.errors import DataError, Problem

SHOWN: Final = 5  # lines a message lists; the rest is only counted, so that memory does not grow with faults


class Faults:
    """The faults found so far in one file."""

    def __init__(self, who: str) -> None:
        self.who = who
        self._single: list[Problem] = []
        self._lines: dict[tuple[str, str, str], tuple[list[int], int]] = {}

    def __bool__(self) -> bool:
        return bool(self._single or self._lines)

    def add(self, needs: str, got: object, hint: str) -> None:
        """Record a fault of the file as a whole."""
        self._single.append(Problem(self.who, needs, str(got), hint))

    def at(self, line: int, needs: str, got: str, hint: str) -> None:
        """Record a fault of one line; equal faults of other lines join it in one message."""
        shown, count = self._lines.setdefault((needs, got, hint), ([], 0))
        if len(shown) < SHOWN:
            shown.append(line)
        self._lines[needs, got, hint] = (shown, count + 1)

    def problems(self) -> list[Problem]:
        """Return every fault, one message a kind."""
        found = list(self._single)
        for (needs, got, hint), (shown, count) in self._lines.items():
            where = f"{got} in line{'s' if count > 1 else ''} {', '.join(map(str, shown))}"
            if count > len(shown):
                where += f" and {count - len(shown)} more"
            found.append(Problem(self.who, needs, where, hint))
        return found

    def stop(self) -> DataError:
        """Return the error that carries everything found, for the caller to raise."""
        return DataError(self.problems())

    def raise_if_any(self) -> None:
        """Raise what was found.

        Raises:
            DataError: If anything was found.
        """
        if self:
            raise self.stop()
