"""Checks of promises that show in no schedule: memory (P12), and what does not fit (P13).

The tests that name these promises use them, and so do the planted faults: each of these checks has been seen to fail.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from tests.promises.fleet import DIM, RUN, Case, Fleet, entropy_for, run_plan, with_stores
from tests.promises.oracle import require

from consilia.core.canonical import Json, digest_bytes
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import VERSION, decode, encode, pack_vector
from consilia.rounds.clear import Clear
from consilia.rounds.pipelines import pipelines
from consilia.transport.inprocess import InProcess

LINUX = Path("/proc/self/status").exists()
PARAMETERS = 2_000_000
SLACK = 1.02  # what an interpreter does beside it, over three models
SITE = "Arnhem"


def require_small(sites: int, sown: str = "") -> None:
    """Check that a round takes at most three models and 64 kB a site at the coordinator.

    Args:
        sites: How many.
        sown: Name of a planted fault; a process of its own sows it.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.promises.memory", f"{sites}", f"{PARAMETERS}", "sgd", *([sown] if sown else [])],
        check=True, text=True, capture_output=True, cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"},
    )  # fmt: skip
    found = json.loads(done.stdout)
    allowed = 3 * 4 * PARAMETERS * SLACK + sites * (1 << 16)
    require(found["growth"] <= allowed, "P12", f"a round of {sites} sites took {found['models']} models")


def misfit(what: str, plan: str) -> tuple[bytes, tuple[str, str]]:
    """Return a task that does not fit in one way, and the two values that its refusal must name."""
    body: dict[str, Json] = {"plan": plan, "run": RUN, "counted": 0}
    dim, named = DIM, ("", "")
    match what:
        case "plan":
            body["plan"], named = "0" * 64, (plan[:12], "0" * 12)
        case "run":
            body["run"], named = "another", (RUN, "another")
        case "length":
            dim, named = DIM + 1, (f"{4 * DIM} bytes", f"{4 * DIM + 4} bytes")
    frame = bytearray(encode(ProtocolMessage("train", SITE, 1, body, pack_vector(np.zeros(dim, np.float32)))))
    if what == "version":
        frame[4], named = VERSION + 1, (f"wire version {VERSION};", f"wire version {VERSION + 1}")
    return bytes(frame), named


def require_refused(what: str, place: Path, shelf: Path) -> None:
    """Check that a site refuses a task of another version, length, plan or run, computes nothing, and says what and what."""
    case = Case("dp")
    fleet = Fleet(case, with_stores(case, place, shelf), entropy_for(case, 0))
    frame, named = misfit(what, fleet.plan.digest)
    site, store = fleet.open_site(SITE)
    with closing(store), _log() as said:
        answer = decode(site.handle(frame), who="test")
        require(isinstance(answer, ProtocolMessage) and answer.kind == "refused", "P13", f"another {what} was answered")
        require(store.charged(RUN) == [], "P13", f"another {what} was charged")
    text = " ".join(said)
    require(all(value in text for value in named), "P13", f"of another {what} not both values are named: {text}")


def require_dropped() -> None:
    """Check that the coordinator drops an update of another length, and says what and what."""
    plan = run_plan(Case("clear"))
    model = pack_vector(np.zeros(DIM, np.float32))
    longer = Release(bytes(4 * DIM + 4), SITE, 1, plan.digest, digest_bytes(model))
    sites = {terms.name: (lambda _: encode(longer)) if terms.name == SITE else _silent for terms in plan.sites}
    clear = Clear(plan, run=RUN, pipelines=pipelines(plan, control_dim=0), transport=InProcess(sites, lambda: 0.0))
    found = clear.updates(1, [SITE, "Bergen"], model, {})
    require(SITE not in found.names, "P13", "an update of another length was added")
    reason = found.dropped[SITE]
    require(f"{4 * DIM + 4} bytes" in reason and f"{4 * DIM} bytes" in reason, "P13", f"not both are named: {reason}")


def _silent(_: bytes) -> bytes:
    return encode(ProtocolMessage("refused", "Bergen", 1, {"error": "none"}))


@contextmanager
def _log() -> Iterator[list[str]]:
    """Yield what the site writes into its own log: only there, for its steward, is the text of a refusal."""
    said: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, log = Heard(), logging.getLogger("consilia.site")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    try:
        yield said
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
