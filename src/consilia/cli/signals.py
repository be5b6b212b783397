"""How a process that serves is told to end."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

_GRACE = 10.0  # seconds


def until_told(work: Callable[[threading.Event], None]) -> None:
    """Do the work until SIGTERM or Ctrl-C; whatever cannot end within seconds is left: what is committed is safe.

    Raises:
        Exception: What the work raised.
    """
    stop, failed = threading.Event(), []

    def told(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:
            failed.append(error)
        finally:
            stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    thread = threading.Thread(target=run, name="work", daemon=True)
    thread.start()
    while not stop.wait(3600):
        pass
    thread.join(_GRACE)
    if thread.is_alive():
        # In the middle of a round: taking the streams down around it would make it a round without answers. A kill is safe.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    if failed:
        raise failed[0]
