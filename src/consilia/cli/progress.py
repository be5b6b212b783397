"""A run's progress on stderr: a live bar on a terminal, a handful of lines elsewhere."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from consilia.cli.output import console
from consilia.report.numbers import bound, duration, share, size

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

LINES = 10


class Progress(AbstractContextManager["Progress"]):
    """Called with each round's record.

    Args:
        rounds: Rounds of the whole schedule.
        done: Rounds that were done before this process.
        moved: Bytes they moved.
        clock: Monotonic seconds.
    """

    def __init__(
        self, rounds: int, *, done: int = 0, moved: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rounds, self._first, self._done, self._moved = rounds, done, done, moved
        self._clock = clock
        self._started = clock()
        self._record: Mapping[str, Any] = {}
        self._scored: Mapping[str, Any] = {}
        self._skipped = 0
        self._console = console(stderr=True)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(get_renderable=self._draw, console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Take in one round."""
        if self._done == self._first:
            self._started = self._clock() - float(record.get("seconds", 0.0))
        self._record = record
        self._done = int(record["round"])
        self._moved += int(record.get("bytes_up", 0)) + int(record.get("bytes_down", 0))
        self._skipped += record.get("status") == "skipped"
        if record.get("accuracy") is not None:
            self._scored = record
        if self._live is None and self._is_due():
            self._console.print(f"{self._where()}  {self._what()}", soft_wrap=True, markup=False)

    def _is_due(self) -> bool:
        every = max(1, -(-self._rounds // LINES))
        return self._done % every == 0 or self._done in (self._first + 1, self._rounds)

    def _where(self) -> str:
        width = len(str(self._rounds))
        return f"round {self._done:>{width}} of {self._rounds}"

    def _what(self) -> str:
        scored, record = self._scored, self._record
        parts = []
        if scored or "hidden" in record.get("per_site", {}).values():  # else no round has been evaluated yet
            parts.append(f"accuracy {share(scored.get('accuracy'))}")
        if scored.get("worst_site") is not None:
            parts.append(f"worst {scored['worst_site']} {share(scored.get('worst_accuracy'))}")
        if record.get("epsilon_spent") is not None:
            parts.append(f"epsilon {bound(record['epsilon_spent'], 3)} of {bound(record.get('epsilon_budget'), 3)}")
        parts.append(size(self._moved))
        if self._skipped:
            parts.append(f"{self._skipped} skipped")
        return "  ".join(parts)

    def _left(self) -> str:
        passed, here = self._clock() - self._started, self._done - self._first
        return f"{duration(passed / here * (self._rounds - self._done))} left" if here else ""

    def _draw(self) -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(no_wrap=True)
        row.add_column(ratio=1)
        row.add_column(no_wrap=True, justify="right")
        row.add_row(
            Text(self._where(), style="bold"),
            ProgressBar(self._rounds, self._done, complete_style="cyan", finished_style="cyan"),
            Text(self._left(), style="dim"),
        )
        if not self._record and self._done == self._first:
            return Group(row, Text("reading plan and data", style="dim"))
        return Group(row, Text(self._what(), overflow="ellipsis", no_wrap=True))
