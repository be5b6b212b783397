"""The published Adult table, computed into its true totals, beside runs of ours at those totals."""

from math import log, sqrt

from benchmarks.study import PLANS, Case, Json, by_name, column, run_cases, seeds
from benchmarks.tables import percent, table
from consilia.core.spec import Adjacency
from consilia.dp.accountant import bound
from consilia.dp.event import Event

DELTA = 1e-5
PUBLISHED = {(10, "none"): 81.6, (30, "none"): 82.4, (10, "5"): 77.9, (30, "5"): 79.8, (10, "1"): 72.3, (30, "1"): 75.6}
BATCHES = 204  # of 32 rows in a pass over a fifth of the 32,561 training rows
EPOCHS = 2
RATES = {"none": 0.1, "5": 0.1, "1": 0.03}  # chosen on the training rows alone, as all settings of this study
SHAPE = (
    "model.name=mlp", "training.algorithm=fedavg", "training.batch=fixed", "training.batch_size=32",
    f"training.local_epochs={EPOCHS}", "training.server_optimizer=sgd", "training.server_learning_rate=1",
    "training.keep=last", "evaluation.every=1000000",
)  # fmt: skip


def multiplier(epsilon: float) -> float:
    """Return the textbook noise over the sensitivity 2C, for one release: sqrt(2 ln(1.25 / delta)) / epsilon.

    Above epsilon 1 that formula is not proved; `total` of one release says what such noise really gives.
    """
    return sqrt(2 * log(1.25 / DELTA)) / epsilon


def turns(rounds: int) -> int:
    """Return in how many rounds a site is asked: 3 of 5, as a balanced schedule has it."""
    return -(-rounds * 3 // 5)


def total(epsilon: float, releases: int) -> float:
    """Return the true epsilon of so many releases with the textbook noise for `epsilon` each."""
    return bound([(Event(multiplier(epsilon), 1.0, 1, Adjacency.REPLACE_ONE), releases)], DELTA).epsilon


def measure(small: bool) -> Json:
    chosen, found, totals = seeds(1, 3, small=small), [], []
    short = ("training.rounds=1", "data.train_rows=1000") if small else ()
    open_plan, private = PLANS / "adult-open.toml", PLANS / "adult.toml"
    for rounds, stated in PUBLISHED:
        labels: Json = {"rounds": rounds, "epsilon": stated}
        shape = (*SHAPE, f"training.rounds={rounds}", f"training.learning_rate={RATES[stated]}", *short)
        if stated == "none":
            found.append(Case(f"{rounds} rounds, none", open_plan, shape, chosen, labels))
            continue
        releases, steps = EPOCHS * turns(rounds), EPOCHS * BATCHES * turns(rounds)
        z, true = multiplier(float(stated)), total(float(stated), releases)
        totals.append(
            {**labels, "noise over 2C": z, "one release": total(float(stated), 1), "releases": releases, "total": true,
             "steps": steps, "every step charged": total(float(stated), steps)}
        )  # fmt: skip
        # Replacing a row moves a sum of clipped examples by 2C: this noise over C is twice its ratio to 2C.
        same = (
            "privacy.unit=record",
            "privacy.delta=1e-5",
            "privacy.clip_norm=1",
            f"privacy.noise_multiplier={2 * z!r}",
        )
        found.append(Case(f"{rounds} rounds, {stated}, same shape", open_plan, (*shape, *same), chosen, labels))
        ours = ("training.rounds=200", f"privacy.epsilon={true!r}", "evaluation.every=1000000", *short)
        found.append(Case(f"{rounds} rounds, {stated}, ours", private, ours, chosen, labels))
    return {"totals": totals, "cases": run_cases(found)}


def section(result: Json) -> str:
    """Return the part of the Adult section that this module measured."""
    named, rows = by_name(result), []
    totals = {(entry["rounds"], entry["epsilon"]): entry for entry in result["totals"]}
    for (rounds, stated), published in PUBLISHED.items():
        if stated == "none":
            accuracy = percent(column(named[f"{rounds} rounds, none"], "accuracy"))
            rows.append([f"{rounds}", "none", f"{published}", "", "", "", accuracy, ""])
            continue
        entry, same = totals[rounds, stated], named[f"{rounds} rounds, {stated}, same shape"]
        rows.append(
            [
                f"{rounds}", f"{stated} ({entry['one release']:.2f})", f"{published}", f"{entry['releases']}",
                f"**{entry['total']:.1f}**", f"{entry['every step charged']:.0f} ({entry['steps']})",
                f"{percent(column(same, 'accuracy'))} (epsilon {same['runs'][0]['epsilon']:.1f})",
                percent(column(named[f"{rounds} rounds, {stated}, ours"], "accuracy")),
            ]
        )  # fmt: skip
    head = ["rounds", "epsilon per release as stated (true for one)", "published, %", "releases a record enters",
            "true total", "total if every step is charged (steps)", "same shape and noise, examples clipped, %",
            "our full-batch run at the true total, %"]  # fmt: skip
    few, many = EPOCHS * turns(10), EPOCHS * turns(30)
    return f"""### The published table in true totals

{table(head, rows)}

Published: MLP 22-64-2, 5 sites, 3 a round, 2 local epochs, batch 32, C = 1, "epsilon" per release. Taken here: the
textbook noise sqrt(2 ln(1.25/delta)) x 2C / epsilon on every step with delta 1e-5, a site asked in 3 of 5 rounds
(6 of 10, 18 of 30), {BATCHES} batches a pass. A record enters one batch a pass, so {few} or {many} releases; their
composition by our accountant (replace-one, nothing amplified: these batches are not secret Poisson draws) is the true
total. Where batches are not fixed passes but drawn anew, every step counts: next column. The formula holds for one
release and epsilon ≤ 1 only; what one release at that noise truly gives stands in brackets.
**The published runs clip the gradient of a batch, not of each example, so even these totals say nothing of a record**:
they are what the noise would give had examples been clipped. "Same shape" does that: MLP with 64 hidden units on our
inputs, same rounds, batches, C and noise over 2C, every example clipped, noise on each step's sum; local rate {RATES["5"]}
(stated 1: {RATES["1"]}). "Our full-batch run" is the logistic regression above, 200 rounds, calibrated to the true total."""
