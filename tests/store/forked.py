"""Work done in a process of its own that a crash point kills: forked, so that hundreds of kills take seconds."""

import os
import sys
import traceback
from collections.abc import Callable

from consilia.store import crash


def killed_at(place: str, work: Callable[[], object]) -> int:
    """Do the work in a child that dies at `place` ("name:k"); return its exit status, -9 for a kill."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            crash._target, crash._remaining = crash._read(place)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended)
