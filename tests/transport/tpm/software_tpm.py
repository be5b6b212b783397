"""A software TPM for tests, started and stopped here. Its maker's certificates would be our own: it proves the code path."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def require_swtpm() -> None:
    """Skip, saying why, where swtpm is absent; in CI its absence is a fault."""
    if shutil.which("swtpm") is None:
        reason = "swtpm is not installed: apt-get install swtpm (make test does it for root)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@contextlib.contextmanager
def software_tpm() -> Iterator[Path]:
    """Start a TPM with an empty state; yield its socket. Connecting again after a close needs `start` anew."""
    require_swtpm()
    with tempfile.TemporaryDirectory(prefix="tpm") as folder:  # a short path: a socket's name has 107 bytes
        socket = Path(folder) / "s"
        process = start(Path(folder), socket)
        try:
            yield socket
        finally:
            process.kill()
            process.wait()


def start(state: Path, socket: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([
        "swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}", "--server", f"type=unixio,path={socket}",
        "--flags", "not-need-init,startup-clear",
    ])  # fmt: skip
    for _ in range(500):
        if socket.exists():
            return process
        if process.poll() is not None:
            break
        time.sleep(0.01)
    process.kill()
    process.wait()
    pytest.fail("swtpm did not start")
