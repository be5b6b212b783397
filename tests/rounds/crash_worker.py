"""Run, kill and resume real runs: imports once, then forks a fresh process for every attempt.

Reads a JSON list of cases {"name", "plan", "crash", "folder"} from the file named by its first argument, and prints one JSON
line a case: what the killed process left, and what the resumed one came to.
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import consilia
import consilia.api  # what the lazy package imports at first use
from consilia.core.errors import ConsiliaError
from consilia.plan.load import from_text
from consilia.store import crash
from consilia.store.ledger_store import SiteStore
from consilia.transport.session import JOURNAL


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
    }


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

    first = forked(killed)
    left = forked(lambda: ledgers(home))
    began = (out / JOURNAL).exists()
    second = forked(lambda: outcome(consilia.resume(out)))
    if second.get("error") == "StoreError":  # killed before the run began: a new run is what the message asks for
        second |= {"again": forked(lambda: outcome(consilia.run(plan, out=folder / "run2")))}
    after = forked(lambda: ledgers(home))
    return {"name": case["name"], "first": first, "left": left, "journal": began, "second": second, "after": after}


if __name__ == "__main__":
    main()
