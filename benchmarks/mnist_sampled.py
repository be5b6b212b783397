"""FedAvg and FedProx on MNIST with label skew when only three of ten sites answer a round: where FedAvg swings."""

import tempfile
from pathlib import Path

from benchmarks.mnist_noniid import ALPHAS, METHODS, PLAN, missing, outcome, source, thin
from benchmarks.study import Case, Json, Study, main, run_case, scratch, seeds
from benchmarks.tables import provenance, table

COMPARED = ("FedAvg", "FedProx mu 0.01", "FedProx mu 0.1", "FedProx mu 1")
SAMPLED = ("aggregation.selection=count", "aggregation.count=3", "training.rounds=30", "training.local_epochs=5")


def measure(small: bool) -> Json:
    place = source()
    if place is None:
        raise missing()
    short = ("training.rounds=2", "data.train_rows=300") if small else ()
    found = []
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        data = f"data.path={thin(place, Path(folder), small=small)}"
        for alpha in ALPHAS[:1] if small else ALPHAS:
            for method in COMPARED:
                own = (data, f"sites.alpha={alpha}", *SAMPLED, *METHODS[method], *short)
                case = Case(
                    f"alpha {alpha}, {method}", PLAN, own, seeds(1, 3, small=small), {"alpha": alpha, "method": method}
                )
                found.append(run_case(case, curve=True))
    return {"cases": found}


def section(result: Json) -> str:
    n = len(result["cases"][0]["seeds"])
    head, rows = outcome(result)
    return f"""### Three of ten sites a round, five local epochs

{table(head, rows)}

The set-up above, but with three sites a round, 5 local epochs and 30 rounds; {n} seeds. Here a round's three sites pull the
model to their own labels, which is the swing that the published runs speak of.

{provenance(result)}"""


STUDY = Study("mnist_sampled", measure, section)

if __name__ == "__main__":
    main(STUDY)
