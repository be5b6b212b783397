"""Several sites of the soak test in one process, each as `consilia site` runs it: own keys, ledger, policy and line.

python -m benchmarks.timing.soak_sites FOLDER SECONDS SITE...     # a line breaks every so many seconds
"""

import contextlib
import os
import random
import signal
import socket
import sys
import threading
from pathlib import Path

from consilia.federation.site_process import SiteProcess


def main() -> None:
    """Run the sites until told to stop."""
    folder, seconds, names = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    sites = [SiteProcess(folder / name / "site.toml") for name in names]
    port = int(sites[0].config.coordinator.rpartition(":")[2])
    threads = [
        threading.Thread(target=site.run, args=(stop,), name=name) for name, site in zip(names, sites, strict=True)
    ]
    for thread in threads:
        thread.start()
    chance = random.Random(names[0])
    while not stop.wait(chance.uniform(0.5, 1.5) * seconds):
        cut(port, chance)
    for thread in threads:
        thread.join()


def cut(port: int, chance: random.Random) -> None:
    """Break one of this process's lines to the coordinator, as a router on the way might."""
    lines = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or no socket
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                line = socket.socket(fileno=os.dup(int(name)))
                if line.family in (socket.AF_INET, socket.AF_INET6) and line.getpeername()[1] == port:
                    lines.append(line)
                else:
                    line.close()
    if lines:
        with contextlib.suppress(OSError):
            chance.choice(lines).shutdown(socket.SHUT_RDWR)
    for line in lines:
        line.close()


if __name__ == "__main__":
    main()
