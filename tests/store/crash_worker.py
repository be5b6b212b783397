"""A small run in a process of its own: one site, one coordinator, three rounds; meant to be killed and started again.

Usage: crash_worker.py FOLDER MODE, MODE one of private, reproducible, free. What it computes and what it sends go to logs
that are on disk before the next step, so that a test can compare them with what ledger and journal say.
"""

import hashlib
import os
import sys
from pathlib import Path
from typing import Literal

from consilia.core.spec import Adjacency
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore

ROUNDS = 3
RUN = "run"
POPULATION = "people"
EVENT = Event(1.0, 0.01, 10)
# One more than the rounds: room for the round that a kill makes the private mode compute again.
ALLOTMENT = Allotment(RUN, POPULATION, ((EVENT, ROUNDS + 1),), 1.0, 1e-5, Adjacency.ADD_REMOVE, "server")
START = b"start"


def after(state: bytes, release: bytes) -> bytes:
    return hashlib.sha256(state + release).digest()


def local_state(round: int) -> bytes:
    return f"local state {round}".encode()


def _log(folder: Path, name: str, round: int, release: bytes) -> None:
    with (folder / name).open("ab") as file:
        file.write(f"{round} {release.hex()}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def _compute(round: int, mode: str) -> bytes:
    return f"release {round}".encode() if mode == "reproducible" else os.urandom(64)


def _seal(store: SiteStore, folder: Path, round: int, mode: str, model: bytes) -> bytes:
    found = store.sealed(RUN, round)
    if found is not None:
        return found.release
    digest, kept = model.hex(), local_state(round)
    if mode == "free":
        release = _compute(round, mode)
        store.seal_free(RUN, round, release=release, model_digest=digest, local_state=kept)
        return release
    purpose: Literal["update"] = "update"
    hold = store.reserve(RUN, round, purpose, EVENT, reuse_open=mode == "reproducible")
    release = _compute(round, mode)
    _log(folder, "computed", round, release)
    store.commit(hold, release=release, model_digest=digest, local_state=kept)
    return release


def main(folder: Path, mode: str) -> None:
    with SiteStore.open(folder / "site.sqlite", "A") as store:
        if mode != "free":
            store.allot(ALLOTMENT, fingerprint="f", limit=1.0)
            if store.limit(POPULATION) != 2.0:
                store.set_limit(POPULATION, 2.0)
        path = folder / "journal.sqlite"
        begun = path.exists() and path.stat().st_size > 0
        journal = (
            Journal.open(path) if begun else Journal.create(path, run=RUN, plan_json="{}", digest="d", state=[START])
        )
        with journal:
            while journal.round < ROUNDS:
                round = journal.round + 1
                release = _seal(store, folder, round, mode, journal.state)
                _log(folder, "sent", round, release)
                head = store.head(POPULATION)
                journal.commit_round(
                    round, state=[after(journal.state, release)], record={"round": round, "release": release.hex()},
                    charges=[] if mode == "free" else [{"site": "A", "head": head}],
                )  # fmt: skip
            if journal.status == "running":
                journal.finish("done", None, {"rounds": ROUNDS})
            store.close_run(RUN, "done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
