"""Many small sites trained together: how much faster a simulated round is than one by one.

python -m benchmarks.cohort            # minutes; writes results/cohort.json and COHORT.md
python -m benchmarks.cohort --small    # seconds, to see that the script works; no finding

Whole rounds through `consilia.run` (1000 sites of 100 rows, 100 asked a round, 5 local steps), the training part alone (100
sites of 50 to 200 rows), and what durable ledgers add under privacy, measured apart. One thread, ratios of neighbours.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.speed import machine
from benchmarks.study import RESULTS, ROOT, Json, made
from benchmarks.tables import table
from benchmarks.timing.cohort import Rounds, ledgers, training_part, whole_rounds
from consilia.learning.work import LocalWork

_TENS, _POISSON = 'batch = "fixed"\nbatch_size = 10', 'batch = "poisson"\nsampling_rate = 0.2'
_PLAIN = LocalWork(batch="fixed", batch_size=10, steps=5)
_PRIVATE = LocalWork(
    batch="poisson", sampling_rate=0.2, batch_cap=80, expected_batch=25.0, steps=5, clip_norm=1.0, noise_multiplier=1.0
)
WORKS = {
    "batch 10": _PLAIN,
    "batch 32": replace(_PLAIN, batch_size=32),
    "all rows": LocalWork(batch="full", steps=5),
    "record-level DP, q 0.2": _PRIVATE,
}
RUNS = {
    "logistic 16-2, batch 10": Rounds("logistic", _TENS),
    "MLP 22-64-2, batch 10": Rounds("mlp", _TENS),
    "logistic 16-2, record-level DP, q 0.2": Rounds("logistic", _POISSON, private=True),
    "MLP 22-64-2, record-level DP, q 0.2": Rounds("mlp", _POISSON, private=True),
}


def measure(small: bool) -> Json:
    """Return the three parts."""
    sites, pairs, durable = (16, 2, 2) if small else (100, 15, 7)  # a private round waits for the disk

    def timed(run: Rounds) -> Json:
        run = replace(run, sites=2 * sites, asked=sites) if small else run
        return _apart(lambda folder: whole_rounds(run, folder, durable if run.private else pairs))

    return {
        "rounds": {name: timed(run) for name, run in RUNS.items()},
        "training": {
            f"{title}, {name}": training_part(model, work, sites=sites, pairs=pairs)
            for model, title in (("logistic", "logistic 16-2"), ("mlp", "MLP 22-64-2")) for name, work in WORKS.items()
        },
        "ledgers": _apart(lambda folder: ledgers(folder, sites=sites, pairs=pairs, writers=16)),
    }  # fmt: skip


def _apart(part: Callable[[Path], Json]) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        return part(Path(folder))


def page(result: Json) -> str:
    """Return the page of a result."""
    rows = [
        [name, _span(run["one_by_one_cpu_ms"]), _span(run["together_cpu_ms"]), _span(run["faster_cpu"]),
         _span(run["faster_wall"])] for name, run in result["rounds"].items()
    ]  # fmt: skip
    trained = [
        [name, _span(part["one_by_one_cpu_ms"]), _span(part["together_cpu_ms"]), _span(part["faster_cpu"])]
        for name, part in result["training"].items()
    ]
    books, how, where = result["ledgers"], result["made"], result["machine"]
    apart = max(part["results_apart"] for part in result["training"].values())
    whole = ["Run", "one by one, CPU ms", "together, CPU ms", "times faster, CPU", "times faster, wall"]
    return f"""# Many small sites, trained together

Written by `{how["command"]}`; commit `{how["commit"][:12]}`, {how["date"]}, {how["seconds"]:.0f} s, one thread, load average
{where["load_average"][0]:g} on {where["cores"]} cores shared with other work. Medians, quartiles in brackets; each ratio is
that of neighbours in time. Rows are random numbers: only time is measured.

## Whole rounds of `consilia.run`

1000 sites of 100 rows, 100 asked a round, 5 local steps; messages, admission, journal and, under DP, every ledger included.

{table(whole, rows)}

## The training part alone

100 sites of 50 to 200 rows, 5 steps. The results differ by at most {apart:.1g} (float32 rounding).

{table(["Work", "one by one, CPU ms", "together, CPU ms", "times faster"], trained)}

## The ledgers

Under DP every site reserves and commits on disk in every round: {books["durable_commits_a_round"]} durable commits for
{books["sites_a_round"]} sites. None is left out when sites train together, but up to {books["writers"]} ledgers wait for the disk
at the same time, as those of real sites do. One after the other they take {_span(books["one_by_one_wall_ms"])} ms, so
{_span(books["together_wall_ms"])} ms: {_span(books["faster_wall"])} times faster. The processor works
{_span(books["one_by_one_cpu_ms"])} and {_span(books["together_cpu_ms"])} ms of that.
"""


def _span(of: Json) -> str:
    return f"{of['median']:.3g} ({of['lower']:.3g}-{of['upper']:.3g})"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cohort")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    small = parser.parse_args().small
    torch.set_num_threads(1)
    how, started = made("cohort", small), time.monotonic()
    result = {"study": "cohort", "made": how, **measure(small)}
    how["seconds"] = round(time.monotonic() - started, 1)
    result["machine"] = machine()
    place = RESULTS / ("cohort-small.json" if small else "cohort.json")
    place.write_text(json.dumps(result, indent=1) + "\n")
    if not small:
        (ROOT / "benchmarks" / "COHORT.md").write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
