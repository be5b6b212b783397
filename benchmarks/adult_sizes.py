"""Five sites of very unequal size (125 : 1): each weighting and tilted client sampling, with and without privacy."""

from pathlib import Path

import consilia
from benchmarks import central
from benchmarks.study import PLANS, Case, Json, Study, column, main, run_cases, seeds
from benchmarks.tables import mean, percent, provenance, table
from consilia.rounds.rows import site_rows

SIZES = (25_000, 5_000, 1_500, 800, 200)
ALL_FIVE = ("aggregation.count=5",)
RULES: dict[str, tuple[str, ...]] = {
    "n": ("aggregation.weights=n",),
    "n^0.5": ("aggregation.weights=power", "aggregation.alpha=0.5"),
    "uniform": ("aggregation.weights=uniform",),
    "capped": ("aggregation.weights=capped",),
}
TILTED = ("aggregation.selection=tilted", "aggregation.tilt=0.5")
SKEW = (
    "sites.partition=quantity-skew", "training.rounds=200", "training.server_learning_rate=1", "evaluation.every=1000000",
)  # fmt: skip
SMALLEST = "the smallest site alone"


def adult(small: bool) -> list[Case]:
    """Return the rows of Adult over five simulated sizes."""
    sizes = [250, 50, 15, 8, 4] if small else list(SIZES)
    short = ("training.rounds=2",) if small else ()
    rules = {
        **{name: (*rule, *ALL_FIVE) for name, rule in RULES.items()},
        "n, 3 of 5 a round": ("aggregation.count=3",),
        "n, 3 of 5 a round, tilted": (*TILTED, "aggregation.count=3"),
    }
    rules["capped"] += ("aggregation.cap=1500",)
    found = []
    for epsilon in ("none", "1"):
        plan, own = (
            (PLANS / "adult-open.toml", ())
            if epsilon == "none"
            else (PLANS / "adult.toml", (f"privacy.epsilon={epsilon}",))
        )
        for name, rule in rules.items():
            labels = {"table": "adult", "epsilon": epsilon, "rule": name}
            changes = (*SKEW, f"sites.sizes={sizes}", "sites.count=5", *rule, *own, *short)
            found.append(Case(f"adult, epsilon {epsilon}, {name}", plan, changes, seeds(1, 3, small=small), labels))
    return found


def heart(small: bool) -> list[Case]:
    """Return the rows of the four real centres."""
    rules = {**RULES, "n, 3 of 4 a round": ("aggregation.selection=count", "aggregation.count=3"),
             "n, 3 of 4 a round, tilted": (*TILTED, "aggregation.count=3")}  # fmt: skip
    rules["capped"] += ("aggregation.cap=85",)
    short = ("training.rounds=2",) if small else ()
    return [
        Case(f"heart, {name}", PLANS / "heart.toml", (*rule, "evaluation.every=1000000", *short),
             seeds(1, 30, small=small), {"table": "heart", "epsilon": "1", "rule": name})
        for name, rule in rules.items()
    ]  # fmt: skip


def alone(small: bool) -> Json:
    """Train on the smallest site's rows only, without privacy, and score on all held-out rows."""
    chosen, runs = seeds(1, 3, small=small), []
    sizes = list(SIZES)
    changes = (*SKEW, f"sites.sizes={sizes}", "sites.count=5", *ALL_FIVE)
    for seed in chosen:
        plan = consilia.load(PLANS / "adult-open.toml", set=[*changes, f"run.seed={seed}"])
        rows = site_rows(plan, Path())
        model = central.train(plan, [rows["site-05"]], epochs=200, batch=None, rate=1.0, momentum=0.9)
        runs.append({"seed": seed, "accuracy": central.accuracies(model, list(rows.values()))[0]})
    settings = {"rows": "site-05", "steps": 200, "batch": "all rows", "rate": 1.0, "momentum": 0.9}
    return {"name": SMALLEST, "labels": {"table": "alone"}, "seeds": list(chosen), "plan": settings, "runs": runs}


def measure(small: bool) -> Json:
    return {"cases": [alone(small), *run_cases([*adult(small), *heart(small)])]}


def _rows(result: Json, name: str) -> list[list[str]]:
    rows = []
    for case in result["cases"]:
        if case["labels"]["table"] != name:
            continue
        worst = [min(run["per_site"].values()) for run in case["runs"]]
        variance = mean([10_000 * value for value in column(case, "accuracy_variance")])
        rows.append(
            [
                case["labels"]["epsilon"], case["labels"]["rule"], percent(column(case, "accuracy")),
                percent(column(case, "accuracy_mean_over_sites")), percent(worst),
                f"{variance.value:.2f} ± {variance.half:.2f}",
            ]
        )  # fmt: skip
    return rows


def section(result: Json) -> str:
    named = {case["name"]: case for case in result["cases"]}
    smallest = percent(column(named[SMALLEST], "accuracy"))
    n = len(named[SMALLEST]["seeds"])
    splits = next(len(case["seeds"]) for case in result["cases"] if case["labels"]["table"] == "heart")
    head = ["epsilon", "weights, sampling", "accuracy, all test rows, %", "mean of sites, %", "worst site, %",
            "variance over sites, points²"]  # fmt: skip
    return f"""## Sites of very unequal size

Adult over five sites of {", ".join(f"{size:,}" for size in SIZES)} training rows (125 : 1, as 100,000 to 800):

{table(head, _rows(result, "adult"))}

The smallest site alone, without privacy: {smallest} %.

The same rules on the four real centres of Heart Disease (199, 172, 30, 85 training rows), epsilon 1, {splits} random splits:

{table(head, _rows(result, "heart"))}

No figures are published for this setting; what is asked is that each site's result and their variance are shown.

Adult: logistic regression, one full-batch gradient a site and round, 200 rounds, server rate 1, momentum 0.9, mean of the
second half's models, {n} seeds. Rows of all sites come from one distribution and the official test rows are dealt evenly
(about 3,256 a site), so **differences between Adult's sites are mostly chance of their test rows**; what the rule
changes is how much a small site's noise counts. Under privacy (record, noise at the site) a site of 200 rows adds 125
times the noise of one of 25,000 to its mean gradient, and uniform weights let that through. Cap: 1,500 on Adult, 85 on
Heart. Tilted: a site is asked in proportion to n^-0.5 and corrected in the average (Adult's largest: in 16 % of rounds, at
3.9 times its weight; the limit is 4). An average is over those who answered, so rounds without a large site are steered
by small sites and their noise: tilting pays in no row here. A site asked more often is charged more often, and the noise
is set by the site asked most.
Heart: as in its own study, where the centres do differ. ± = 95 % interval of the mean over runs (Student's t).

{provenance(result)}"""


STUDY = Study("adult_sizes", measure, section)

if __name__ == "__main__":
    main(STUDY)
