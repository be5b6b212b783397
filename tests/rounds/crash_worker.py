"""Run, kill and resume real runs: imports once, then forks a fresh process for every attempt.

Reads a JSON list of cases {"name", "plan", "crash", "folder"} from the file named by its first argument, and prints one JSON
line a case: what the killed process left, and what the resumed one came to. Of runs with secure sums also: which answers
left the sites, in the killed process and the resumed one, and what the coordinator signed and each site kept of it.
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import consilia
import consilia.api  # what the lazy package imports at first use
from consilia.core.errors import ConsiliaError
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import decode
from consilia.federation.session import JOURNAL
from consilia.plan.load import from_text
from consilia.rounds.site import Site
from consilia.store import crash
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore


def forked(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the work in a child; return what it gave, and the signal that ended it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = work()
        except ConsiliaError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        except BaseException:
            answer = {"error": "crash", "text": traceback.format_exc()}
        with os.fdopen(writer, "w") as out:
            json.dump(answer, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as source:
        text = source.read()
    _, status = os.waitpid(child, 0)
    answer = json.loads(text) if text else {}
    return answer | {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


def outcome(result: consilia.RunResult) -> dict[str, Any]:
    return {
        "model": hashlib.sha256(result.model.tobytes()).hexdigest(),
        "epsilon": result.summary["epsilon"],
        "status": result.summary["status"],
        "rounds": len(result.records),
        "dropped": {site: why for record in result.records for site, why in record["dropped"].items()},
        "statuses": [record["status"] for record in result.records],
        "transcript": [record["transcript"] for record in result.records],
        "staleness": [record["staleness"] for record in result.records],
    }


def listened(path: Path, work: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Note on disk what leaves the sites while this works: an answer that was not handed over did not leave."""

    def listening() -> dict[str, Any]:
        handle = Site.handle

        def noted(site: Site, frame: bytes) -> bytes:
            answer = handle(site, frame)
            item, task = decode(answer, who="test"), decode(frame, who="test")
            assert isinstance(task, ProtocolMessage)
            stage = task.kind if isinstance(item, Release) else str(item.body.get("stage"))
            left = [site.name, task.round, str(task.body.get("purpose", "update")), stage, task.body.get("session"),
                    hashlib.sha256(item.payload).hexdigest()]  # fmt: skip
            with path.open("a") as log:
                log.write(json.dumps(left) + "\n")
            return answer

        with patch.object(Site, "handle", noted):
            return work()

    return listening


def ledgers(home: Path) -> dict[str, Any]:
    """Count what each site's ledger holds: charges (open holds included), commits, and whether the chain is whole."""
    found = {}
    for path in sorted((home / "sites").glob("*.sqlite")):
        with SiteStore.open(path, path.stem) as store:
            for population in store.populations():
                kinds = [str(entry.kind) for entry in store.entries(population)]
                store.verify(population)
                found[path.stem] = {"charged": kinds.count("reserve"), "committed": kinds.count("commit"),
                                    "allotted": kinds.count("allot")}  # fmt: skip
    return found


def entries(home: Path, out: Path) -> dict[str, Any]:
    """Return what each site kept of what the coordinator signed."""
    with Journal.open(out / JOURNAL) as journal:
        run = journal.run
    found = {}
    for path in sorted((home / "sites").glob("*.sqlite")):
        with SiteStore.open(path, path.stem) as store:
            found[path.stem] = [json.loads(entry) for entry in store.sessions.transcript(run)]
    return found


def main() -> None:
    torch.use_deterministic_algorithms(
        True
    )  # the reproducible mode's setting loads half of torch: once, before the forks
    for case in json.loads(Path(sys.argv[1]).read_text()):
        print(json.dumps(attempt(case)), flush=True)


def attempt(case: dict[str, Any]) -> dict[str, Any]:
    folder = Path(case["folder"])
    home, out = folder / "home", folder / "run"
    os.environ["CONSILIA_HOME"] = str(home)
    plan = from_text(case["plan"])

    def killed() -> dict[str, Any]:
        name, _, count = case["crash"].partition(":")
        crash._target, crash._remaining = name, int(count or 1)
        return outcome(consilia.run(plan, out=out))

    log = folder / "left"
    first = forked(listened(log, killed))
    left = forked(lambda: ledgers(home))
    began = (out / JOURNAL).exists()
    second = forked(listened(log, lambda: outcome(consilia.resume(out))))
    if second.get("error") == "StoreError":  # killed before the run began: a new run is what the message asks for
        second |= {"again": forked(lambda: outcome(consilia.run(plan, out=folder / "run2")))}
    after = forked(lambda: ledgers(home))
    report = {"name": case["name"], "first": first, "left": left, "journal": began, "second": second, "after": after}
    if "[secure_sum]" in case["plan"]:
        report["answers"] = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        report["entries"] = forked(lambda: entries(home, out)) if began else {}
    return report


if __name__ == "__main__":
    main()
