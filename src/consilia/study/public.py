"""The same search on rows that nobody has to protect: nothing is charged, everything may be shown."""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.federation import session
from consilia.federation.simulation import prepare
from consilia.plan import load as plans
from consilia.plan.schema import Plan
from consilia.study import space
from consilia.study.search import OnTrial, Trial, score_of
from consilia.study.space import Values
from consilia.study.tune_file import TuneFile, keys

_POPULATION = "stand-in"


@dataclass(frozen=True)
class Advice:
    """What a public search found.

    Attributes:
        plan: The plan with the best candidate's values, on its own data again.
        values: That candidate.
        score: What it reached on the stand-in.
        trials: Every trial.
    """

    plan: Plan
    values: Values
    score: float
    trials: tuple[Trial, ...]


def public_search(plan: Plan, tune: TuneFile, *, data_folder: Path, on_trial: OnTrial) -> Advice:
    """Try candidates on the tune file's stand-in data, with the plan's own noise, and return the best.

    As many trials as the law's mean, drawn from the plan's public seed. The plan's own data are not read.

    Raises:
        PlanError: If the tune file names no stand-in, or a candidate cannot be trained on it, or none came to a score.
        DataError: With every fault of the stand-in's data.
    """
    axes = space.axes(keys(tune))
    base = stand_in(plan, tune)
    rng = SecretRng.reproducible_from(SharedSeed.of(plan.run.seed).derive("public search"))
    candidates = [space.draw(axes, rng) for _ in range(max(1, round(tune.law.mean)))]
    tried = [space.with_values(base, values) for values in candidates]
    for each in {repr(each): each for each in tried}.values():
        prepare(each, data_folder)
    done: list[Trial] = []
    for index, (each, values) in enumerate(zip(tried, candidates, strict=True)):
        on_trial(Trial(index + 1, len(tried), values))
        score = _score(each, tune.score, data_folder)
        done.append(Trial(index + 1, len(tried), values, score))
        on_trial(done[-1])
    best = max(done, key=lambda trial: -math.inf if trial.score is None else trial.score)
    if best.score is None:
        raise PlanError.of("the search", needs="a candidate that comes to a score", got=f"none of {len(done)}",
                           hint="Lower the rates, or try other values")  # fmt: skip
    return Advice(space.with_values(plan, best.values), best.values, best.score, tuple(done))


def stand_in(plan: Plan, tune: TuneFile) -> Plan:
    """Return the plan on the tune file's public rows: the same training and noise, metrics for all to see, no limit.

    Raises:
        PlanError: If the tune file names none, or it does not go with the plan.
    """
    if tune.public is None:
        raise PlanError.of("tune section public", needs="a stand-in for the plan's data with --public", got="none",
                           hint='Write  [public.data]  and below it  source = "adult"')  # fmt: skip
    raw: Any = plans.canonical(plan)
    sites = dict(tune.public.sites) if tune.public.sites is not None else {**raw["sites"], "only": None}
    raw |= {
        "data": tune.public.data, "sites": {**sites, "counts": "public", "population": _POPULATION},
        "evaluation": {"metrics": "public", "every": raw["evaluation"]["every"]}, "ledger": {},
    }  # fmt: skip
    return plans.from_json(raw)


def _score(plan: Plan, by: str, data_folder: Path) -> float | None:
    with tempfile.TemporaryDirectory(prefix="consilia-public-") as scratch:  # ledgers too: there is nobody to charge
        folder = Path(scratch)
        result = session.begin(plan, data_folder=data_folder, home=folder, out=folder / "run", on_round=None)
        return score_of(result, by)
