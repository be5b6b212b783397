"""MNIST at one site: the small CNN against epsilon, beside the curve that is published as a ceiling."""

import tempfile
from pathlib import Path

from benchmarks.mnist_noniid import missing, source, thin
from benchmarks.study import ROOT, Case, Json, Study, by_name, column, main, run_cases, scratch, seeds
from benchmarks.tables import percent, provenance, table

PLAN, OPEN = (ROOT / "benchmarks" / "plans" / name for name in ("mnist-private.toml", "mnist-open.toml"))
ROWS = 60_000


def steps(batch: int, epochs: int) -> tuple[str, str]:
    """Return the sampling rate and the rounds of an expected batch and a number of passes."""
    return f"training.sampling_rate={batch / ROWS:.10f}", f"training.rounds={round(epochs * ROWS / batch)}"


def rate(value: float) -> str:
    """Return the override of the step size."""
    return f"training.server_learning_rate={value:g}"


# Beside the plan file's settings for epsilon 3.
BUDGETS: dict[str, tuple[str, ...]] = {
    "3": (),
    "1": (*steps(4096, 8), rate(8)),
    "0.5": (*steps(4096, 5), rate(6)),
    "0.1": (*steps(8192, 3), rate(4)),
}
TARGETS = {"3": "≥ 98.1", "1": "≥ 97", "0.5": "aim 96", "0.1": "aim 85"}
BEST = {"3": "98.1"}
# Points that the published table loses against its plain training; at .1 it is "just above chance".
LOST = {"3": 15.0, "1": 30.0}
CHANCE = 10.0
FIGURE = "mnist-private.svg"


def cases(place: Path, small: bool) -> list[Case]:
    """Return the case without privacy and one for each budget."""
    data, chosen = f"data.path={place}", seeds(1, 3, small=small)
    short = ("training.rounds=2",) if small else ()
    return [
        Case("none", OPEN, (data, *short), chosen[:1], {"epsilon": "none"}),
        *(
            Case(f"epsilon {e}", PLAN, (data, f"privacy.epsilon={e}", *own, *short), chosen, {"epsilon": e})
            for e, own in BUDGETS.items()
        ),
    ]  # fmt: skip


def measure(small: bool) -> Json:
    place = source()
    if place is None:
        raise missing()
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        return {"cases": run_cases(cases(thin(place, Path(folder), small=True) if small else place, small))}


def section(result: Json) -> str:
    named = by_name(result)
    plain = 100 * sum(column(named["none"], "accuracy")) / len(named["none"]["runs"])
    n = len(named["epsilon 3"]["seeds"])
    return f"""## MNIST at one site: the small CNN

![Accuracy on MNIST against epsilon: what is published as a ceiling, and what these runs reach.](images/{FIGURE})

{table(HEAD, [_row(case, plain) for case in result["cases"]])}

26,010 weights, bounded activations, all 60,000 training rows at one site, delta 1e-5, add-remove, Poisson batches, momentum
0.9, a rate that falls along a cosine, C = 0.1, last model; scored on the 10,000 official test rows. ± is a 95 % interval of
the mean over {n} runs (Student's t) with fresh noise and other initial weights; the test rows are the same. Best
published: the same net and kind of training (Tramer and Boneh 2021, at epsilon 2.93). "Published ceiling": the plain
accuracy of this table minus the points that the published table loses; at .1 it is "just above chance".

**Hyper-parameters**: those of epsilon 3 were chosen among some fifteen settings (step size, passes, batch, clip norm, other
optimizers and inputs) on the last 10,000 training rows after training on the first 50,000; those of the smaller budgets
were set by hand after one such run at epsilon 1, and are not tuned. The test rows took no part. **That tuning is not
charged** to epsilon, which covers the run alone. One run without privacy, the others {n} each. Rows were run apart, some
side by side on two busy cores: the seconds below are no measure of speed.

{provenance(result)}"""


HEAD = [
    "epsilon", "batch", "passes", "rate", "noise multiplier", "test accuracy, %", "target", "best published",
    "published ceiling",
]  # fmt: skip


def settings(case: Json) -> list[str]:
    """Return batch, passes, rate and noise multiplier of a case as the tables print them."""
    training, z = case["plan"]["training"], case["runs"][0]["noise_multiplier"]
    q = training["sampling_rate"]
    return [
        f"{q * ROWS:,.0f}", f"{q * training['rounds']:.0f}", f"{training['server_learning_rate']:g}", f"{z:.2f}" if z else "-",
    ]  # fmt: skip


def _row(case: Json, plain: float) -> list[str]:
    epsilon = case["labels"]["epsilon"]
    return [
        epsilon, *settings(case), accuracy(case), TARGETS.get(epsilon, ""), BEST.get(epsilon, ""),
        f"about {ceiling(epsilon, plain):.0f}" if ceiling(epsilon, plain) else "",
    ]  # fmt: skip


def ceiling(epsilon: str, plain: float) -> float | None:
    """Return the published accuracy at a budget, percent, given that of plain training; None where none is published."""
    if epsilon == "0.1":
        return CHANCE
    return plain - LOST[epsilon] if epsilon in LOST else None


def accuracy(case: Json) -> str:
    """Return the accuracy of a case in percent, with an interval where there is more than one run."""
    found = column(case, "accuracy")
    return percent(found) if len(found) > 1 else f"{100 * found[0]:.2f}"


STUDY = Study("mnist_private", measure, section)

if __name__ == "__main__":
    main(STUDY)
