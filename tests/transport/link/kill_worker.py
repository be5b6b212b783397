"""Sites that are killed: imports once, then forks a fresh process for every attempt, none of which knows torch.

Reads JSON lines {"crash", "home", "folder", "name", "port", "size", "forgets"} and starts a site for each; prints its pid. A line
{"stop": pid} ends one. Each site notes in its home what it handles and what leaves it.
"""

import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from tests.transport.link.inboxes import MemoryInbox

from consilia.core.update import Bytes
from consilia.store import crash
from consilia.store.ledger_store import SiteStore
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.link.courier import Courier


def site(case: dict[str, str]) -> None:
    """Be a site until told to stop."""
    name, _, count = case["crash"].partition(":")
    crash._target, crash._remaining = name, int(count or 1)
    home, stop = Path(case["home"]), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def note(kind: str, *values: str) -> None:
        with (home / kind).open("a") as file:
            file.write(" ".join(values) + "\n")

    def handle(frame: Bytes) -> bytes:
        note("handled", hashlib.sha256(frame).hexdigest())
        return os.urandom(16) * (int(case["size"]) // 16)  # another one each time

    store = SiteStore.open(home / "site.db", case["name"])
    inbox = MemoryInbox() if case["forgets"] else store.inbox
    own = Credentials.load(Path(case["folder"]))
    Courier(
        case["name"], [GrpcLink(f"127.0.0.1:{case['port']}", own)], inbox, handle, spool=home / "spool",
        leaves=lambda id, frame: note("left", id.hex(), hashlib.sha256(frame).hexdigest()), retry_cap=0.2,
        clock=time.monotonic,
    ).run(stop)  # fmt: skip
    store.close()


def main() -> None:
    """Start and stop sites as told."""
    if "torch" in sys.modules:
        raise RuntimeError("a site's courier must not need torch")
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGTERM}
    )  # a site that is told to stop before it can hear hears it later
    for line in sys.stdin:
        case = json.loads(line)
        if "stop" in case:
            os.kill(case["stop"], signal.SIGTERM)
            continue
        child = os.fork()
        if child == 0:
            sys.stdin.close()
            site(case)
            os._exit(0)
        threading.Thread(target=lambda pid=child: print(json.dumps([pid, os.waitpid(pid, 0)[1]]), flush=True)).start()
        print(json.dumps(child), flush=True)


if __name__ == "__main__":
    main()
