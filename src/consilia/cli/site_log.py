"""What sites log during a simulation: one line for each kind of fault on stderr, not one for every round."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from consilia.cli.output import say


class _OnceEach(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: set[tuple[str, ...]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, unless the same site said the same before."""
        error = record.exc_info[1] if record.exc_info else None
        fault = f"{type(error).__name__}: {error}" if error is not None else ""
        site, _, *rest = record.args if isinstance(record.args, tuple) and len(record.args) > 1 else ("", 0)
        key = (
            str(record.msg),
            str(site),
            fault,
            *map(str, rest),
        )  # the round, second of a site's words, tells nothing new
        if key not in self._seen:
            self._seen.add(key)
            say(record.getMessage() + (f": {fault}" if fault else ""), style="yellow")


@contextmanager
def warnings_once() -> Iterator[None]:
    """Show what sites log while this is open."""
    logger, handler = logging.getLogger("consilia"), _OnceEach()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
