"""A site of the rig in a process of its own: what is done to the process is done to the site alone.

Reads a JSON object from its first argument: case, folder, name, address, credentials, and perhaps memory (bytes that round 2's
training may take at most, of which it takes more). Notes on standard output what it answered.
"""

import json
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.promises.fleet import Case, Fleet, entropy_for

from consilia.core.errors import ConsiliaError
from consilia.core.update import Bytes, Release
from consilia.core.wire import decode
from consilia.rounds.ports import Trained
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.link.courier import Courier


def main() -> None:
    told: dict[str, Any] = json.loads(sys.argv[1])
    name, folder = told["name"], Path(told["folder"])
    case = Case(**told["case"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    site, store = Fleet(case, folder / "run", entropy_for(case, 1)).open_site(name)
    if "memory" in told:
        greedy(site, told["memory"])

    def handle(frame: Bytes) -> bytes:
        answer = site.handle(frame)
        item = decode(answer, who="worker")
        print(json.dumps([isinstance(item, Release), item.round, len(item.payload)]), flush=True)
        return answer

    courier = Courier(
        name, [GrpcLink(told["address"], Credentials.load(Path(told["credentials"])))], store.inbox, handle,
        spool=folder / name, leaves=lambda id, frame: None, retry_cap=0.4, clock=time.monotonic,
    )  # fmt: skip
    courier.run(stop)
    store.close()


def greedy(site: Any, memory: int) -> None:
    """Let round 2's training ask for more memory than this process may have from then on."""
    train = site._learner.train

    def trains(payload: Any, local: Any, number: int, secret: Any) -> Trained:
        if number == 2:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, most))
            np.ones(memory, np.float64).sum()
        answer: Trained = train(payload, local, number, secret)
        return answer

    site._learner.train = trains


if __name__ == "__main__":
    try:
        main()
    except ConsiliaError as error:
        sys.exit(f"{type(error).__name__}: {error}")
