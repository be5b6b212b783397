"""What durability costs a round: the time inside the sites' ledgers and the coordinator's journal, call by call."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import consilia
from benchmarks.timing.clock import Moment, digits, quartiles
from benchmarks.timing.workloads import Workload
from consilia.core.canonical import Json
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore

CALLS = ((SiteStore, "sealed"), (SiteStore, "reserve"), (SiteStore, "commit"), (Journal, "commit_round"))


def ledger_cost(work: Workload, folder: Path, rounds: int) -> dict[str, Json]:
    """Train a private workload with its ledgers on disk and add up the time inside them.

    Args:
        work: What to train; its sites charge their ledgers.
        folder: A fresh folder on the disk to measure.
        rounds: Rounds to count, after one that is not.
    """
    os.environ["CONSILIA_HOME"] = str(folder / "home")
    plan = work.plan(folder, rounds + 1)
    whole: list[Moment] = []
    inside: dict[str, list[Moment]] = defaultdict(list)
    with _timed() as spent:
        ended: list[Moment] = []

        def on_round(_record: object) -> None:
            if ended:
                whole.append(Moment.now() - ended.pop())
                for name in (name for _, name in CALLS):
                    inside[name].append(spent[name])
            spent.clear()
            ended.append(Moment.now())

        consilia.run(plan, out=folder / f"run-{work.name}", on_round=on_round)
    total = [Moment(sum(m.cpu for m in part), sum(m.wall for m in part)) for part in zip(*inside.values(), strict=True)]
    rest = [a - b for a, b in zip(whole, total, strict=True)]
    return {
        "sites": work.sites, "sites_a_round": work.cohort, "rounds": rounds,
        "durable_commits_a_round": 2 * work.cohort + 1,
        **{f"{name}_ms": _pair(times) for name, times in inside.items()},
        "ledger_and_journal_ms": _pair(total), "rest_of_round_ms": _pair(rest),
        "ledger_ms_a_site": {
            clock: digits(sum(1e3 * getattr(m, clock) for name in ("sealed", "reserve", "commit") for m in inside[name])
                          / rounds / work.cohort)
            for clock in ("cpu", "wall")
        },
    }  # fmt: skip


def _pair(times: list[Moment]) -> dict[str, dict[str, float]]:
    return {clock: quartiles([1e3 * getattr(m, clock) for m in times]) for clock in ("cpu", "wall")}


@contextmanager
def _timed() -> Iterator[dict[str, Moment]]:
    # From outside, for the length of this measurement: the product keeps no clock in its stores.
    spent: dict[str, Moment] = defaultdict(lambda: Moment(0.0, 0.0))
    originals = [(owner, name, getattr(owner, name)) for owner, name in CALLS]
    for owner, name, call in originals:
        setattr(owner, name, _clocked(call, name, spent))
    try:
        yield spent
    finally:
        for owner, name, call in originals:
            setattr(owner, name, call)


def _clocked(call: Callable[..., Any], name: str, spent: dict[str, Moment]) -> Callable[..., Any]:
    @wraps(call)
    def clocked(*args: object, **options: object) -> object:
        begun = Moment.now()
        try:
            return call(*args, **options)
        finally:
            took = Moment.now() - begun
            spent[name] = Moment(spent[name].cpu + took.cpu, spent[name].wall + took.wall)

    return clocked
