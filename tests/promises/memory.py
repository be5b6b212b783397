"""How much memory a round takes at the coordinator, above what it holds before the run: in a process of its own.

    python -m tests.promises.memory SITES PARAMETERS OPTIMIZER [FAULT]

With the name of a planted fault: how much it is with that one.
Answers are files that are mapped, as the transport hands large frames over. Prints one JSON line; memory is the anonymous
part of the resident set (`RssAnon`), read every half millisecond, so that what SQLite allocates counts and pages of files
do not.
"""

import json
import mmap
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from consilia.core.canonical import digest_bytes
from consilia.core.spec import Segment
from consilia.core.update import Gone, ProtocolMessage, Release
from consilia.core.wire import decode, encode
from consilia.plan.check import check
from consilia.plan.load import from_text
from consilia.rounds.coordinator import Coordinator, server_optimizer
from consilia.rounds.entropy import Entropy
from consilia.rounds.pipelines import pipelines
from consilia.rounds.ports import Arrival
from consilia.rounds.state import TrainingState, to_pieces
from consilia.store.journal import Journal

_PLAN = """
[data]
source = "heart"
[sites]
counts = {{ {counts} }}
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 2
server_optimizer = "{optimizer}"
[privacy]
unit = "none"
"""


class Files:
    """A transport whose answers lie in files: each site sends the same vector, in a frame of its own."""

    def __init__(self, folder: Path, plan_digest: str, dim: int) -> None:
        self._folder, self._digest = folder, plan_digest
        self._vector = folder / "vector"
        with self._vector.open("wb") as file:
            for start in range(0, dim, 1 << 14):
                file.write(np.full(min(1 << 14, dim - start), 1e-3, np.float32).tobytes())
        self._sent: dict[str, ProtocolMessage] = {}

    def send(self, site: str, frame: bytes) -> None:
        task = decode(frame, who="files")
        assert isinstance(task, ProtocolMessage)
        head = encode(Release(b"", site, task.round, self._digest, digest_bytes(task.payload)))
        with (self._folder / site).open("wb") as out, self._vector.open("rb") as source:
            out.write(head)
            shutil.copyfileobj(source, out, 1 << 16)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        for site in sorted(of or ()):
            with (self._folder / site).open("rb") as file:
                yield Arrival(site, memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


class Peak:
    """The largest anonymous memory of this process while it is watched."""

    def __enter__(self) -> "Peak":
        self._on, self.before = True, _anonymous()
        self.most = self.before
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._on:
            self.most = max(self.most, _anonymous())
            time.sleep(5e-4)

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._thread.join()


def _anonymous() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def measure(sites: int, dim: int, optimizer: str, folder: Path) -> dict[str, float | int | str]:
    names = [f"site{number:03}" for number in range(sites)]
    text = _PLAN.format(counts=", ".join(f"{name} = 10" for name in names), optimizer=optimizer)
    plan = check(from_text(text), counts=dict.fromkeys(names, 10), input_shape=(1,), classes=2,
                 segments=(Segment("weight", (dim,)),))  # fmt: skip
    moments = server_optimizer(plan.phases[0].plan).init(dim)
    for value in moments.values():
        # Zeros take no memory until they are written: what the run holds before the round counts before it.
        value += 0.0
    state = TrainingState(np.full(dim, 0.1, np.float32), moments=moments)
    journal = Journal.create(
        folder / "journal.sqlite", run="r", plan_json="{}", digest=plan.digest, state=to_pieces(state)
    )
    with journal:
        coordinator = Coordinator(
            plan, run="r", state=state, pipelines=pipelines(plan, control_dim=0), entropy=Entropy(), clock=time.monotonic,
            transport=Files(folder, plan.digest, dim), journal=journal,
        )  # fmt: skip
        del state, moments
        with Peak() as peak:
            coordinator.train()
        assert [record["status"] for record in journal.records()] == ["counted"] * 2
    growth = peak.most - peak.before
    return {"sites": sites, "parameters": dim, "optimizer": optimizer, "growth": growth,
            "models": round((growth - sites * (1 << 16)) / (4 * dim), 2)}  # fmt: skip


def main() -> None:
    for fault in sys.argv[4:]:
        getattr(import_module("tests.promises.plants"), fault)(pytest.MonkeyPatch())
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:  # noqa: S108
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(folder))))


if __name__ == "__main__":
    main()
