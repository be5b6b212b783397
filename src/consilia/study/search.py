"""A charged search: the whole is allotted in every site's ledger, then the trials run, and only the best one stays.

Before the first trial: the number of trials and every candidate are drawn and checked, then the price of the search is on
disk. After a trial: the worse of it and the best so far is deleted, and what the sites kept of it.
"""

import math
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from consilia.core.errors import StoreError
from consilia.core.randomness import SecretRng
from consilia.dp.ledger import Allotment
from consilia.dp.search import Search
from consilia.federation import session
from consilia.federation.conduct import RunResult
from consilia.federation.simulation import Prepared, prepare
from consilia.plan.schema import Plan
from consilia.rounds.coordinator import OnRound
from consilia.store.crash import crash_point
from consilia.store.ledger_store import SiteStore
from consilia.study import space
from consilia.study.folder import fresh
from consilia.study.offer import Offer
from consilia.study.space import Values

WINNER, TRIALS = "winner", "trials"
_LOST = "The search stays charged and publishes nothing: mend the cause, then start a new one, which is charged anew"


@dataclass(frozen=True)
class Trial:
    """One trial of a search, for whoever runs it. Nobody else may see it: it is no release.

    Attributes:
        number: Its place, from 1.
        of: How many there are.
        values: Its candidate.
        score: What it reached, larger is better; None before it ends, or where it ended without a score.
    """

    number: int
    of: int
    values: Values
    score: float | None = None


OnTrial = Callable[[Trial], None]


@dataclass(frozen=True)
class Found:
    """What a search publishes.

    Attributes:
        folder: The search's folder.
        winner: The best trial's run; None where no trial was drawn, or none came to a score.
        values: Its candidate.
        plan: Its plan.
    """

    folder: Path
    winner: RunResult | None
    values: Values | None
    plan: Plan | None


def search(
    offered: Offer, *, data_folder: Path, home: Path, out: Path | None, on_trial: OnTrial, on_round: OnRound
) -> Found:
    """Charge a search, run its trials, keep the best.

    Raises:
        PlanError, DataError, BudgetExceeded, StoreError: Before anything was charged; after that what a run may raise,
            and what was charged stays charged.

    Guarantees:
        The search's price is in the ledger of every site before any trial computes anything, and each trial runs under an
        allotment that the search's covers. Number and candidates come from a secret stream and depend on no data.
        The folder returned holds nothing of the trials that were beaten; equal scores keep the earlier one, which among
        trials that are alike is a choice without regard to the data.
    """
    base = offered.plan.run.name.replace(" ", "-")
    name = f"{base}-search-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    rng = SecretRng(secrets.token_bytes(32))
    candidates = [space.draw(offered.axes, rng) for _ in range(offered.law.draw(rng))]
    for values in {repr(values): values for values in candidates}.values():
        offered.claim(prepare(offered.trial(values), data_folder).run_plan, name)
    folder = fresh(out if out is not None else Path("searches") / name, TRIALS, what="search folder")
    some = prepare(offered.trial(next(iter(space.combinations(offered.axes)))), data_folder)
    with _ledgers(offered, some, home) as ledgers:
        try:
            _allot(offered, name, len(candidates), ledgers)
        except BaseException:
            shutil.rmtree(folder)
            raise
        crash_point("search.allotted")
        try:
            best = _best(offered, candidates, name, _Room(data_folder, home, folder, ledgers), on_trial, on_round)
        except StoreError as error:  # a full disk in a trial: its own advice, to resume, does not hold within a search
            shutil.rmtree(folder / TRIALS, ignore_errors=True)
            raise StoreError(replace(problem, hint=_LOST) for problem in error.problems) from None
        for ledger, _ in ledgers.values():
            ledger.close_run(name, "done")
    if best is None:
        return Found(folder, None, None, None)
    return Found(folder, _settle(best.result, folder), best.values, offered.trial(best.values))


@dataclass(frozen=True)
class _Room:
    """Where trials run and what they are charged to."""

    data_folder: Path
    home: Path
    folder: Path
    ledgers: Mapping[str, tuple[SiteStore, str]]


def _best(
    offered: Offer, candidates: Sequence[Values], name: str, room: _Room, on_trial: OnTrial, on_round: OnRound
) -> "_Scored | None":
    """Run the trials one after another; of two, the worse is deleted at once."""
    base = offered.plan.run.name.replace(" ", "-")
    best: _Scored | None = None
    for number, values in enumerate(candidates, 1):
        on_trial(Trial(number, len(candidates), values))
        # Named without number or time: the winner's name must not tell how many it beat.
        run = f"{base}-{secrets.token_hex(6)}"
        result = _trial(offered, values, name, run, room.data_folder, room.home, room.folder / TRIALS / run, on_round)
        score = score_of(result, offered.tune.score)
        on_trial(Trial(number, len(candidates), values, score))
        crash_point("search.scored")
        if score is None or (best is not None and score <= best.score):
            _drop(room.folder / TRIALS / run, run, room.ledgers)
            continue
        if best is not None:
            _drop(best.result.folder, best.result.summary["run"], room.ledgers)
        best = _Scored(score, result, values)
    return best


@dataclass(frozen=True)
class _Scored:
    score: float
    result: RunResult
    values: Values


@contextmanager
def _ledgers(offered: Offer, prepared: Prepared, home: Path) -> Iterator[Mapping[str, tuple[SiteStore, str]]]:
    """Open each site's ledger, with the fingerprint of its rows."""
    with ExitStack() as stack:
        yield {
            site: (
                stack.enter_context(SiteStore.open(home / "sites" / f"{site}.sqlite", site)),
                prepared.rows[site].train.fingerprint(),
            )
            for site in offered.sites
        }


def _allot(offered: Offer, name: str, trials: int, ledgers: Mapping[str, tuple[SiteStore, str]]) -> None:
    plan = offered.plan
    allotments = {
        site: Allotment(
            name, plan.sites.population or plan.data.source, (), part.epsilon, offered.delta,
            part.bases[0][0][0].adjacency, offered.against, search=Search(offered.law, trials, part.bases),
        )
        for site, part in offered.sites.items()
    }  # fmt: skip
    for site, (ledger, _) in ledgers.items():  # all are asked before any books
        ledger.require_room(allotments[site], limit=plan.ledger.max_epsilon)
    for site, (ledger, fingerprint) in ledgers.items():
        ledger.allot(allotments[site], fingerprint=fingerprint, limit=plan.ledger.max_epsilon)


def _trial(
    offered: Offer, values: Values, name: str, run: str, data_folder: Path, home: Path, folder: Path, on_round: OnRound
) -> RunResult:
    prepared = prepare(offered.trial(values), data_folder)
    claimed = replace(prepared, run_plan=offered.claim(prepared.run_plan, name))
    return session.start(claimed, run, data_folder=data_folder, home=home, folder=folder, on_round=on_round)


def score_of(result: RunResult, by: str) -> float | None:
    """Return a trial's score, larger is better; None where it failed, as one that diverges, or came to no number."""
    value: Any = None if result.summary["status"] == "failed" else result.summary[by]
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return -float(value) if by == "loss" else float(value)


def _drop(folder: Path, run: str, ledgers: Mapping[str, tuple[SiteStore, str]]) -> None:
    """Delete a beaten trial: its folder, and the newest release and local state that each site kept of it."""
    shutil.rmtree(folder, ignore_errors=True)
    for ledger, _ in ledgers.values():
        ledger.close_run(run, "beaten")
        ledger.forget(run)


def _settle(result: RunResult, folder: Path) -> RunResult:
    place = folder / WINNER
    try:
        result.folder.rename(place)
        (folder / TRIALS).rmdir()
    except OSError as error:
        raise StoreError.of(f"search folder {folder}", needs="to be writable", got=error.strerror or "an error",
                            hint=f"The winner lies in {result.folder}") from None  # fmt: skip
    return replace(result, folder=place)
