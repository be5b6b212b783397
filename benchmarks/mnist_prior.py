"""MNIST at one site: the small CNN from weights that learnt synthetic strokes, beside the same net from random weights."""

import hashlib
import tempfile
from pathlib import Path

import safetensors

from benchmarks import mnist_private
from benchmarks.mnist_noniid import missing, source, thin
from benchmarks.mnist_private import HEAD, accuracy, rate, settings, steps
from benchmarks.stroke_prior import COMMAND, PLACE, SOURCE
from benchmarks.study import ROOT, Case, Json, Study, by_name, main, read, run_cases, scratch, seeds
from benchmarks.tables import provenance, table

PLAN = ROOT / "benchmarks" / "plans" / "mnist-prior.toml"
LABEL = "CNN, prior from synthetic strokes (no real image)"
# Beside the plan file's settings for epsilon 3.
BUDGETS: dict[str, tuple[str, ...]] = {
    "3": (),
    "1": (*steps(4096, 8), rate(8)),
    "0.5": (*steps(4096, 5), rate(6)),
    "0.1": (*steps(8192, 3), rate(4)),
}


def cases(place: Path, small: bool) -> list[Case]:
    """Return one case a budget."""
    short = ("training.rounds=2",) if small else ()
    return [
        Case(
            f"epsilon {e}", PLAN, (f"data.path={place}", f"privacy.epsilon={e}", *own, *short), seeds(1, 3, small=small),
            {"epsilon": e},
        )
        for e, own in BUDGETS.items()
    ]  # fmt: skip


def prior() -> Json:
    """Return where the initial weights come from: their file's digest, and what their maker wrote in it."""
    with safetensors.safe_open(PLACE, framework="numpy") as file:
        return {"sha256": hashlib.sha256(PLACE.read_bytes()).hexdigest(), **file.metadata()}


def measure(small: bool) -> Json:
    place = source()
    if place is None:
        raise missing()
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        chosen = cases(thin(place, Path(folder), small=True) if small else place, small)
        return {"prior": prior(), "cases": run_cases(chosen)}


def section(result: Json) -> str:
    scratch_result = read(mnist_private.STUDY.name)
    named = by_name(scratch_result) if scratch_result else {}
    rows = []
    for case in result["cases"]:
        epsilon = case["labels"]["epsilon"]
        plain = named.get(f"epsilon {epsilon}")
        rows.append([epsilon, *settings(case), accuracy(case), accuracy(plain) if plain else "",
                     mnist_private.TARGETS[epsilon], mnist_private.BEST.get(epsilon, "")])  # fmt: skip
    n = len(result["cases"][0]["seeds"])
    return f"""## MNIST at one site: the small CNN, prior from synthetic strokes (no real image)

{table([*HEAD[:5], "test accuracy, %, prior from strokes", "from random weights (above)", *HEAD[6:8]], rows)}

Net, data and scoring of the section above, but the initial weights: there random, here those of a net that learnt to tell
300 classes of made-up glyphs apart (100,000 images of one to three random strokes, `strokes.py`), with zeros in the last
layer; `{COMMAND}` writes them from one seed. **No real image is in them**, private or public: the claim
covers all data that the result was made from, and the start cost nothing. The card of such a run names them as
"{SOURCE}". All layers are trained on. The idea is
that of DP-RandP (Tang et al. 2023, images of an untrained generator). **The target at 3 is met with this start; from random
weights it is missed**, as above. "Best published" is from random weights, so the column of random weights compares with it. What
the strokes owe to MNIST: 28 x 28 pixels, figures of up to 20 pixels about their centre, what handwriting looks like, and one
look at three dozen training images beside them, after which only the points of a curve were made fewer, for speed.

± is a 95 % interval of the mean over {n} runs (Student's t) with fresh noise; the initial weights and the test rows are
the same in all. **Hyper-parameters** were chosen on the last 10,000 training rows after training on the first 50,000, in
eleven private runs and by linear models without privacy on the priors' features. The prior is the second of three (without
decay and smoothing; with them; with more decay and 1,000 classes), drawn and trained again with other chances for the file.
The rate at 1 is the best of 4, 8, 14 and 16 (4 and 16 with the first prior), at .1 the better of 2 and 4; 6 at 3 was
the only one tried, and .5 has that of random weights, untried.
Passes, batches and C are those of random weights, at 3 a third of the passes. There the chosen
settings gave 98.35 at 3 (before the prior was trained again), 97.44 at 1 and 93.01 at .1. The test rows took no part. **That
tuning is not charged** to epsilon, which covers the run alone. Budgets were run apart on a busy machine: the seconds below
are no measure of speed.

{provenance(result)}"""


STUDY = Study("mnist_prior", measure, section)

if __name__ == "__main__":
    main(STUDY)
