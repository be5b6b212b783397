"""Noise in shares inside a secure sum beside central DP-SGD on the pooled rows, and beside every site's own noise."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import numpy as np

import consilia
from benchmarks.study import PLANS, Case, Json, Study, Train, by_name, column, main, run_case, seeds
from benchmarks.tables import percent, points, provenance, table
from consilia.data.table import Table
from consilia.federation import session
from consilia.federation.simulation import Prepared, prepare
from consilia.plan.check import check
from consilia.rounds.rows import SiteRows

ONE = "everyone"
MASKS = ("privacy.noise=distributed", "secure_sum.mode=masks")
SPARE = ("secure_sum.dropouts=1", "secure_sum.colluders=1")


@dataclass(frozen=True)
class Setting:
    """Rounds, clip norm and server learning rate."""

    rounds: int
    clip: float
    rate: float

    @property
    def changes(self) -> tuple[str, ...]:
        """What it sets in a plan."""
        return (
            f"training.rounds={self.rounds}", f"privacy.clip_norm={self.clip}",
            f"training.server_learning_rate={self.rate}",
        )  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """One table: its plan, sites, settings for each epsilon, and how often it is run.

    Attributes:
        name: "Heart" or "Adult".
        plan: The plan that all rows change.
        changes: What they all change.
        sites: Number of sites.
        once: Settings where the noise is drawn once for the sum, for each epsilon.
        each: Settings where every site draws its own, for each epsilon.
        runs: Seeds for each epsilon.
    """

    name: str
    plan: Path
    changes: tuple[str, ...]
    sites: int
    once: Mapping[str, Setting]
    each: Mapping[str, Setting]
    runs: Mapping[str, int]


HEART = Rows(
    "Heart", PLANS / "heart.toml", (), 4,
    {"0.1": Setting(10, 0.3, 2), "1": Setting(120, 1, 0.1), "3": Setting(120, 1, 0.5)},
    {"0.1": Setting(10, 0.3, 2), "1": Setting(120, 0.3, 0.1), "3": Setting(120, 0.3, 2)},
    {"0.1": 100, "1": 20, "3": 20},
)  # fmt: skip
_ADULT = {"0.1": Setting(100, 1, 1), "1": Setting(100, 1, 3), "3": Setting(300, 1, 3)}
ADULT = Rows(
    "Adult", PLANS / "adult-one-site.toml", ("sites.count=5",), 5, _ADULT, _ADULT,
    {"0.1": 3, "1": 3, "3": 3},
)  # fmt: skip


def pooled(plan: consilia.Plan) -> Prepared:
    """Return the plan with one site that holds what all its sites hold: same training rows, test rows, first model."""
    apart = prepare(plan, Path())
    rows = SiteRows(
        _joined([part.train for part in apart.rows.values()]), _joined([part.test for part in apart.rows.values()])
    )
    run_plan = check(
        plan, counts={ONE: len(rows.train)}, input_shape=rows.train.input_shape, classes=len(rows.train.classes),
        segments=apart.model.segments,
    )  # fmt: skip
    return replace(apart, run_plan=run_plan, rows={ONE: rows})


def _joined(parts: list[Table]) -> Table:
    return replace(
        parts[0], origin=None, sites=None, patients=None, official_test=None,
        features=np.concatenate([part.features for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        ids=np.concatenate([part.ids for part in parts]),
    )  # fmt: skip


def central(excess: float) -> Train:
    """Return what trains a plan on the pooled rows, its calibrated noise's variance times `excess`."""

    def train(plan: consilia.Plan, folder: Path) -> consilia.RunResult:
        prepared = pooled(plan)
        if excess > 1:
            z = prepared.run_plan.noise_multiplier * sqrt(excess)
            own = plan.privacy.model_copy(update={"epsilon": None, "noise_multiplier": z})
            prepared = pooled(plan.model_copy(update={"privacy": own}))
        name = f"central-{secrets.token_hex(4)}"
        return session.start(prepared, name, data_folder=Path(), home=consilia.api.home(), folder=folder, on_round=None)

    return train


def cases(rows: Rows, small: bool) -> list[tuple[Case, Train | None]]:
    """Return a table's cases and what trains them, where it is not the product's own run of the plan."""
    found: list[tuple[Case, Train | None]] = []
    excess = rows.sites / (rows.sites - 2)
    for epsilon, count in rows.runs.items():
        short = ("training.rounds=3", *(["data.train_rows=1000"] if rows.name == "Adult" else [])) if small else ()
        same = (f"privacy.epsilon={epsilon}", "evaluation.every=1000000", *rows.changes)
        once, each = (*rows.once[epsilon].changes, *same, *short), (*rows.each[epsilon].changes, *same, *short)
        kinds: dict[str, tuple[tuple[str, ...], Train | None]] = {
            "central": (once, central(1.0)), "distributed": ((*once, *MASKS), None),
            "central, 1 + 1": (once, central(excess)), "distributed, 1 + 1": ((*once, *MASKS, *SPARE), None),
            "site": (each, None),
        }  # fmt: skip
        for kind, (changes, train) in kinds.items():
            labels = {"table": rows.name, "epsilon": epsilon, "noise": kind}
            case = Case(
                f"{rows.name}, epsilon {epsilon}, {kind}", rows.plan, changes, seeds(1, count, small=small), labels
            )
            found.append((case, train))
    return found


def measure(small: bool) -> Json:
    return {"cases": [run_case(case, train=train) for rows in (HEART, ADULT) for case, train in cases(rows, small)]}


TITLES = {
    "central": "central, pooled rows", "distributed": "in shares, masks", "central, 1 + 1": "central, pooled rows",
    "distributed, 1 + 1": "in shares, masks", "site": "every site its own",
}  # fmt: skip
HEAD = [
    "epsilon", "noise", "dropouts + colluders tolerated", "noise multiplier", "accuracy, all test rows, %",
    "minus central with the same allowance, points",
]  # fmt: skip


def _lines(result: Json, name: str) -> list[list[str]]:
    named, lines = by_name(result), []
    for case in result["cases"]:
        labels = case["labels"]
        if labels["table"] != name:
            continue
        kind, epsilon, own = labels["noise"], labels["epsilon"], column(case, "accuracy")
        beside = "central, 1 + 1" if "1 + 1" in kind else "central"
        other = column(named[f"{name}, epsilon {epsilon}, {beside}"], "accuracy")
        lost = "" if kind == beside else points([a - b for a, b in zip(own, other, strict=True)])
        z = case["runs"][0]["noise_multiplier"]
        allowed = "any" if kind == "site" else "1 + 1" if "1 + 1" in kind else "0 + 0"
        lines.append([epsilon, TITLES[kind], allowed, f"{z:.2f}", percent(own), lost])
    return lines


def _splits(result: Json, name: str) -> str:
    found = {
        case["labels"]["epsilon"]: len(case["seeds"]) for case in result["cases"] if case["labels"]["table"] == name
    }
    return ", ".join(f"{count} at {epsilon}" for epsilon, count in found.items())


def section(result: Json) -> str:
    return f"""## Noise in shares: without a trusted server, as accurate as central private training?

Heart Disease, four centres (486 training rows), delta 1e-3:

{table(HEAD, _lines(result, "Heart"))}

Adult, five iid sites (32,561 training rows), delta 1e-5:

{table(HEAD, _lines(result, "Adult"))}

Central: centralised DP-SGD, one site that holds the union of the sites' training rows and adds all noise itself. In
shares: the same rows at their sites, each adds a share of discrete Gaussian noise to its clipped sum, rounded to
integers, and the coordinator opens the masked sum alone; all of it runs, keys and rounds of the masks included. Logistic
regression, one gradient over all rows a round, momentum 0.9, mean of the second half's models; each row's rounds, clip norm
and rate are the same as of the central one beside it. Claimed against the coordinator (with its colluder where one is
tolerated), record, add-remove.
Each is calibrated to the same epsilon by its own accountant: central Gaussian noise exactly, discrete noise as the
Gaussian that it is close to, with what that costs (docs/guarantees-distributed.md, section 3a), so the multipliers agree.
Rounding to the grid adds at most 1 % to the noise; apart from that nothing tells the two apart: the noise in the mean has the
same variance, and without noise the models are the same up to the grid (tests/privacy/test_distributed_is_central.py).
1 + 1: one site may fail to answer and one may collude, so the shares of the others carry the whole noise: when all
answer there is n / (n - 2) times the variance. Central training is given the same variance there.
"Every site its own": full noise at each site, no secure sum; it needs no allowance.

Runs (`run.seed`, each with a split of its own on Heart): Heart {_splits(result, "Heart")}; Adult {_splits(result, "Adult")}.
± is a 95 % interval of the mean over runs (Student's t); differences are taken seed by seed, with fresh noise on both
sides. Rounds, clip norm and rate: Heart with noise drawn once 10, 0.3, 2 at 0.1; 120, 1, 0.1 at 1; 120, 1, 0.5 at 3; every
site its own 10, 0.3, 2; 120, 0.3, 0.1; 120, 0.3, 2. Adult 100, 1, 1; 100, 1, 3; 300, 1, 3, for all.

**Hyper-parameters** are those that an earlier grid search found best for central noise and for every site's own, on
other random splits of the same rows (Heart) or on the same test rows (Adult), and are not tuned for noise in shares. **That
tuning is not charged** to epsilon, which covers the run alone.

{provenance(result)}"""


STUDY = Study("distributed_noise", measure, section)

if __name__ == "__main__":
    main(STUDY)
