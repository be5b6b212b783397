"""MNIST at one site: a linear model on fixed scattering features, at four budgets."""

import tempfile
from pathlib import Path

from benchmarks.mnist_noniid import missing, source, thin
from benchmarks.study import ROOT, Case, Json, Study, column, main, run_cases, scratch, seeds
from benchmarks.tables import percent, provenance, table

PLAN = ROOT / "benchmarks" / "plans" / "mnist-scattering.toml"
LAST = 'training.keep="last"'
SETTINGS: dict[str, tuple[str, ...]] = {
    "3": (
        "training.rounds=1000",
        "training.sampling_rate=0.07",
        "training.server_learning_rate=0.3",
        'training.keep="tail-average"',
    ),
    "1": ("training.rounds=400", "training.sampling_rate=0.1", "training.server_learning_rate=0.2", LAST),
    "0.5": ("training.rounds=200", "training.sampling_rate=0.25", "training.server_learning_rate=0.2", LAST),
    "0.1": ("training.rounds=200", "training.sampling_rate=0.25", "training.server_learning_rate=0.05", LAST),
}
# What the literature's tables give as a ceiling, and the best published method; percent.
CEILING = {"3": "about 84", "1": "below 69", "0.1": "about 10"}
PUBLISHED = {"3": "98.7"}
TARGETS = {"3": "98.5", "1": "97", "0.5": "96", "0.1": "85"}


def cases(place: Path, small: bool) -> list[Case]:
    """Return one case a budget."""
    short = ("training.rounds=2",) if small else ()
    return [
        Case(
            f"epsilon {epsilon}", PLAN, (f"data.path={place}", f"privacy.epsilon={epsilon}", *settings, *short),
            seeds(1, 3, small=small), {"epsilon": epsilon},
        )
        for epsilon, settings in SETTINGS.items()
    ]  # fmt: skip


def measure(small: bool) -> Json:
    place = source()
    if place is None:
        raise missing()
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        return {"cases": run_cases(cases(thin(place, Path(folder), small=True) if small else place, small))}


def section(result: Json) -> str:
    head = ["epsilon", "sampling rate", "rounds", "rate", "noise multiplier", "test accuracy, %", "target",
            "best published", "published ceiling"]  # fmt: skip
    rows = []
    for case in result["cases"]:
        epsilon, training = case["labels"]["epsilon"], case["plan"]["training"]
        rows.append(
            [
                epsilon, f"{training['sampling_rate']:g}", str(training["rounds"]), f"{training['server_learning_rate']:g}",
                f"{case['runs'][0]['noise_multiplier']:.2f}", percent(column(case, "accuracy")),
                TARGETS[epsilon], PUBLISHED.get(epsilon, ""), CEILING.get(epsilon, ""),
            ]
        )  # fmt: skip
    plan = result["cases"][0]["plan"]
    private, momentum = plan["privacy"], plan["training"]["server_momentum"]
    n = len(result["cases"][0]["seeds"])
    return f"""## MNIST at one site: a linear model on scattering features

{table(head, rows)}

Best published: a linear model on scattering features with privately released feature statistics (Tramer and Boneh 2021).
Published ceiling: the losses of 15 and 30 points, and chance at .1, that tables of private deep learning give for MNIST.

Each image becomes 81 x 7 x 7 averages of two layers of Morlet wavelets and moduli (`data.features = "scattering"`), and
each image's 27 groups of 3 paths are brought to mean 0 and variance 1 by that image alone: a fixed function of one
record, so nothing is charged. 39,700 weights, all 60,000 training rows at one site, delta {private["delta"]:g}, add-remove,
Poisson batches, clip norm {private["clip_norm"]:g}, one step a round with momentum {momentum:g}. The result is the last
model, at epsilon 3 the mean of the second half's; it is scored on the 10,000 official test rows. ± is a 95 % interval of
the mean over {n} runs (Student's t) with fresh noise and other initial weights; the test rows are the same.

**Hyper-parameters** were chosen on the last 10,000 training rows after training on the first 50,000. The test rows took no
part in the choice, but had been scored once before: a first setting for epsilon 3 (400 rounds at rate 0.5, last model)
gave 98.45 to 98.62 there, and more rounds were then tried on the validation rows. **That tuning is not charged** to
epsilon, which covers the run alone. Normalising with the exact means and variances of all training rows, as if their
release were free, was no better on the validation rows, so no such release is made.

{provenance(result)}"""


STUDY = Study("mnist_scattering", measure, section)

if __name__ == "__main__":
    main(STUDY)
