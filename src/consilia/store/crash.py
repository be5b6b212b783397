"""Places where a test kills the process, so that "a kill at any moment" is a test and not a hope.

Set CONSILIA_CRASH="name:k" and the process ends by SIGKILL at the k-th passage of that place. Unset, a place
costs one comparison.
"""

import os
import signal

from consilia.core.errors import StoreError

SETTING = "CONSILIA_CRASH"


def _read(setting: str) -> tuple[str, int]:
    name, colon, count = setting.partition(":")
    if colon and not (count.isdecimal() and int(count) >= 1):
        raise StoreError.of(SETTING, needs='"name:k" with k >= 1', got=repr(setting), hint="Unset it outside tests")
    return name, int(count) if colon else 1


_target, _remaining = _read(os.environ.get(SETTING, ""))


def crash_point(name: str) -> None:
    """Kill this process, without any cleaning up, if the setting names this place and its turn has come."""
    global _remaining
    if name != _target:
        return
    _remaining -= 1
    if _remaining == 0:
        os.kill(os.getpid(), signal.SIGKILL)
