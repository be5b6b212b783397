"""Small messages on MNIST over ten sites with label skew: FedAvg, no privacy."""

import tempfile
from pathlib import Path

from benchmarks.messages import HEAD, rows, sizes, upload
from benchmarks.mnist_noniid import PLAIN, PLAN, missing, source, thin
from benchmarks.study import Case, Json, Study, by_name, main, run_case, scratch, seeds
from benchmarks.tables import provenance, table

ALPHA = "0.1"


def measure(small: bool) -> Json:
    place = source()
    if place is None:
        raise missing()
    short = ("training.rounds=2", "data.train_rows=300") if small else ()
    found = []
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        data = f"data.path={thin(place, Path(folder), small=small)}"
        common = (data, PLAIN, f"sites.alpha={ALPHA}", "training.keep=tail-average", "evaluation.every=1000000")
        for name, changes in sizes(1.0).items():
            case = Case(name, PLAN, (*common, *changes, *short), seeds(1, 3, small=small), {"messages": name})
            found.append(run_case(case, score=upload))
    return {"cases": found}


def section(result: Json) -> str:
    plan, n = result["cases"][0]["plan"], len(result["cases"][0]["seeds"])
    rounds, epochs = plan["training"]["rounds"], plan["training"]["local_epochs"]
    return f"""### Small messages: MNIST over ten sites, label skew (Dirichlet {ALPHA})

{table(HEAD, rows(by_name(result)))}

The set-up of the tables above: {plan["data"]["train_rows"]} training rows, {rounds} rounds of FedAvg, {epochs} local
epochs, all ten sites asked, 19,434 parameters, {n} seeds; the result is the mean of the second half's models, which evens
out how FedAvg swings. No rate was tuned for these rows. Top-k needs more rounds than these: in {rounds} of them a site sends at
most {rounds} % of its numbers, and the rest is still in its residual when the run ends. Random-k at a tenth
of the rate is too slow for so few; here, without momentum, the full rate is the better one.

{provenance(result)}"""


STUDY = Study("mnist_messages", measure, section)

if __name__ == "__main__":
    main(STUDY)
