"""Whether the books of a soak agree: the coordinator's records, each site's ledger, and what it says has left it."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from consilia.core.canonical import Json
from consilia.dp.chain import Kind
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore

_UPDATE = "an update, or its part of a sum"  # as the audit log says


def books(folder: Path, run: str, sites: Iterable[str], rounds: int, killed: Mapping[str, int]) -> dict[str, Json]:
    """Return how the rounds ended, and every contradiction in words.

    Args:
        folder: Everybody's folders.
        run: The run.
        sites: All of them.
        rounds: Of the plan.
        killed: site -> how often its process was killed.
    """
    with Journal.open(folder / "hub" / "home" / "runs" / run / "journal.sqlite", read_only=True) as journal:
        records, status = journal.records(), journal.status
    wrong = [*_records(records, rounds)]
    if status not in ("done", "stopped", "failed"):
        wrong.append(f"the run is {status}")
    charged = left = unsent = 0
    for site in sites:
        reserved, committed = ledger(folder / site / "home" / "sites" / f"{site}.sqlite", site, run)
        gone = releases(folder / site / "home" / "audit.jsonl")
        charged, left, unsent = charged + sum(reserved.values()), left + len(gone), unsent + len(committed - gone)
        wrong += _site(site, records, reserved, committed, gone, killed.get(site, 0))
    return {
        "status": status, "counted": sum(record["status"] == "counted" for record in records),
        "skipped": sum(record["status"] != "counted" for record in records),
        "answers_counted": sum(len(record["answered"]) for record in records if record["status"] == "counted"),
        "charged": charged, "released": left, "sealed_and_not_sent": unsent, "wrong": list[Json](wrong),
        "seconds": [round(record["seconds"], 3) for record in records],
    }  # fmt: skip


def _records(records: list[dict[str, Any]], rounds: int) -> Iterable[str]:
    if [record["round"] for record in records] != list(range(1, rounds + 1)):
        yield f"{len(records)} rounds are written down, of {rounds}"
    for record in records:
        number, answered = record["round"], record["answered"]
        if len(set(answered)) < len(answered) or not set(answered) <= set(record["asked"]):
            yield f"round {number} counts a site twice, or one that was not asked"
        if record["status"] != "counted":
            continue
        if set(answered) & set(record["dropped"]) or set(answered) | set(record["dropped"]) != set(record["asked"]):
            yield f"round {number} does not say of each site whether it counted"
        entry = record["transcript"]
        if entry is not None and sorted(entry["uploads"]) != sorted(answered):
            yield f"the signed entry of round {number} names other sites"


def _site(
    site: str, records: list[dict[str, Any]], reserved: Counter[int], committed: set[int], gone: set[int], killed: int,
) -> Iterable[str]:  # fmt: skip
    counted = {record["round"] for record in records if record["status"] == "counted" and site in record["answered"]}
    if counted - gone:
        yield f"{site}: answers were counted that it did not send: rounds {sorted(counted - gone)}"
    if gone - set(reserved):
        yield f"{site}: sent what it was not charged for: {sorted(gone - set(reserved))}"
    if gone - committed:
        yield f"{site}: sent what it had not sealed: {sorted(gone - committed)}"
    more = sum(reserved.values()) - len(gone)
    # What a killed process was charged for, its successor may be asked for, charged for and killed in again.
    if more > 2 * killed:
        yield f"{site}: was charged for {more} answers that it did not send, and killed {killed} times"


def ledger(path: Path, site: str, run: str) -> tuple[Counter[int], set[int]]:
    """Return how often each round's update was charged, and the rounds whose update was sealed."""
    reserved: Counter[int] = Counter()
    committed: set[int] = set()
    with SiteStore.open(path, site) as store:
        for entry in store.entries("heart"):
            if entry.run == run and entry.kind is Kind.RESERVE:
                reserved[entry.round] += 1
            if entry.run == run and entry.kind is Kind.COMMIT:
                committed.add(entry.round)
    return reserved, committed


def releases(path: Path) -> set[int]:
    """Return the rounds whose update has left a site, as it wrote down itself.

    Raises:
        ValueError: If two different ones left for one round.
    """
    found: dict[int, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["what"] == _UPDATE and found.setdefault(entry["round"], entry["sha256"]) != entry["sha256"]:
            raise ValueError(f"{path}: two updates left for round {entry['round']}")
    return set(found)
