"""A model in whose training the process meets its end, where a test has laid a trap for it."""

import os
import signal
import time
from math import prod
from pathlib import Path

import torch
from torch import nn

PLACE = "CONSILIA_TEST_TRAPS"  # the folder of traps; nobody falls into any without it


def lay(kind: str) -> None:
    """Lay a trap for the next worker that trains: kill, hang, fail, or stay (until the file `caught` is taken away).

    What is poisoned kills each worker that trains on 30 rows, until it is taken away.
    """
    (Path(os.environ[PLACE]) / kind).touch()


class Hazard(nn.Module):
    """Passes its input on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = os.environ.get(PLACE)
        if self.training and place:
            for trap in Path(place).iterdir():
                if trap.name in ("kill", "hang", "fail", "stay"):
                    _spring(trap)
                elif trap.name == "poison" and len(x) == 30:
                    os.kill(os.getpid(), signal.SIGKILL)
        return x


def _spring(trap: Path) -> None:
    try:
        trap.unlink()
    except FileNotFoundError:
        return  # another worker was first
    if trap.name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if trap.name == "hang":
        (trap.parent / "caught").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
    if trap.name == "fail":
        raise LookupError("patient 42 is unwell")
    caught = trap.parent / "caught"
    caught.write_text(str(os.getpid()))
    while caught.exists():
        time.sleep(0.05)


def model(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(Hazard(), nn.Linear(prod(input_shape), classes))


def with_norm(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(Hazard(), nn.Linear(prod(input_shape), 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))
