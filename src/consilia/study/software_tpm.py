"""A software TPM for the time of one run, so that attested sums can be tried on any machine that has swtpm."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from consilia.core.errors import TransportError
from consilia.core.version import VERSION
from consilia.federation.attesting import DEVICE
from consilia.transport.tpm import TpmAttester, measure

PROGRAM = "swtpm"
LIMIT = "here a software TPM, which shields nothing from whoever runs the machine"
_REGISTER = 14
_SECONDS = 5.0


def available() -> bool:
    """True if swtpm is installed."""
    return shutil.which(PROGRAM) is not None


@contextmanager
def software_tpm() -> Iterator[Path]:
    """Start one, measure this version's name into it, and have the coordinator use it; yield a policy that accepts it.

    It shows what attested sums take and proves nothing: whoever runs the machine also runs the TPM.

    Raises:
        TransportError: If it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="tpm") as place:  # a short path: a socket's name has 107 bytes
        folder = Path(place)
        process = subprocess.Popen(  # noqa: S603  (nothing in it comes from a plan)
            [PROGRAM, "socket", "--tpm2", "--tpmstate", f"dir={folder}", "--server", f"type=unixio,path={folder / 's'}",
             "--flags", "not-need-init,startup-clear"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        before = os.environ.get(DEVICE)
        try:
            _wait(process, folder / "s")
            policy = _policy(folder)
            os.environ[DEVICE] = str(folder / "s")
            yield policy
        finally:
            if before is None:
                os.environ.pop(DEVICE, None)
            else:
                os.environ[DEVICE] = before
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], socket: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise TransportError.of(f"program {PROGRAM}", needs=f"to start within {_SECONDS:.0f} seconds", got="no socket",
                                    hint=f"Try it by hand: {PROGRAM} socket --tpm2 --help")  # fmt: skip
        time.sleep(0.01)


def _policy(folder: Path) -> Path:
    code = hashlib.sha256(f"consilia {VERSION}".encode()).digest()
    measure(folder / "s", _REGISTER, code)
    with TpmAttester(folder / "s", (_REGISTER,)) as attester:
        root = attester.fingerprint
    register = hashlib.sha256(bytes(32) + code).digest()
    policy = folder / "policy.toml"
    policy.write_text(
        f'kind = "tpm"\nmax_age = 3600\nroots = ["{root}"]\n'
        f'measurements = ["sha256:{_REGISTER}={hashlib.sha256(register).hexdigest()}"]\n',
        encoding="utf-8",
    )
    return policy
