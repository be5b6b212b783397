"""A simulation on a Ray cluster: how much faster its rounds are than in one process, and what the cluster costs to begin.

python -m benchmarks.ray_scale            # minutes; writes results/ray_scale.json and RAY.md
python -m benchmarks.ray_scale --small    # seconds, to see that the script works; no finding

Rounds of one run take turns: one by the process itself, as it would without Ray, the next by the workers. Ratios are those of
neighbours in time. Extra `consilia[ray]`; RAY_ADDRESS names a cluster, else one is started here with a worker a core.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import consilia
from benchmarks.speed import machine
from benchmarks.study import RESULTS, ROOT, Json, made
from benchmarks.tables import table
from benchmarks.timing.clock import digits, quartiles
from benchmarks.timing.cohort import InTurns
from benchmarks.timing.cores import ceiling
from consilia.federation import engines, simulation
from consilia.federation.simulation import Prepared, many_small
from consilia.rounds.together import Together
from consilia.transport.incohort import InCohort
from consilia.transport.inprocess import InProcess
from consilia.transport.spread import Spread, Workers

_PLAN = """
[run]
name = "ray"
seed = 7
[data]
source = "npz"
path = "rows.npz"
classes = {classes}
split = "hash"
test_fraction = 0.0
[sites]
population = "nobody"
partition = "iid"
count = {sites}
counts = "public"
[model]
name = "{model}"
[training]
algorithm = "fedavg"
rounds = {rounds}
local_steps = {steps}
learning_rate = 0.05
{batches}
[privacy]
{privacy}
[evaluation]
metrics = "hidden"
"""
_RECORD = 'unit = "record"\nnoise = "site"\nnoise_multiplier = 1.0\nclip_norm = 1.0\ndelta = 1e-5\ndelta_reason = "a benchmark"'


@dataclass(frozen=True)
class Run:
    """A run to time.

    Attributes:
        model: As the plan names it.
        shape: Of one row.
        rows: Training rows of a site.
        sites: How many are asked in every round.
        steps: Local steps, of 32 rows each.
        pairs: Pairs of rounds to take.
        private: Record-level DP with noise at the site, so that ledgers are kept.
    """

    model: str
    shape: tuple[int, ...]
    rows: int
    sites: int
    steps: int
    pairs: int
    private: bool = False


RUNS = {
    "CNN, 16 sites of 200 rows": Run("mnist-cnn", (28, 28), 200, 16, 6, 5),
    "CNN, 16 sites of 1000 rows": Run("mnist-cnn", (28, 28), 1000, 16, 31, 3),
    "CNN, 16 sites of 200 rows, record-level DP": Run("mnist-cnn", (28, 28), 200, 16, 6, 4, private=True),
    "MLP 22-64-2, 16 sites of 100 rows": Run("mlp", (2, 11), 100, 16, 5, 25),
    "logistic 22-2, 100 sites of 100 rows": Run("logistic", (2, 11), 100, 100, 5, 25),
}


def measure(run: Run, folder: Path) -> Json:
    """Time a run's rounds both ways, and what the workers took to begin.

    Args:
        run: What to run.
        folder: A fresh folder.
    """
    turns: list[InTurns] = []
    prepared: list[Prepared] = []
    began: list[float] = []
    times: tuple[list[float], list[float]] = ([], [])
    ended: list[float] = []
    real = engines.workers

    def timed(engine: str, what: Prepared) -> Any:
        prepared.append(what)
        began.append(time.perf_counter())
        return real(engine, what)

    def in_turns(sites: Mapping[str, Any], workers: Workers, clock: Callable[[], float], *, writers: int) -> InTurns:
        began[0] = time.perf_counter() - began[0]
        here: InProcess | InCohort = InProcess({name: site.handle for name, site in sites.items()}, clock)
        if many_small(prepared[0]):
            here = InCohort(sites, Together(prepared[0].model, time.process_time), clock, writers=writers)
        turns.append(InTurns(here, Spread(sites, workers, clock, writers=writers)))
        return turns[0]

    def on_round(_record: object) -> None:
        if ended:
            times[turns[0].now].append(time.perf_counter() - ended.pop())
        turns[0].now = 1 - turns[0].now
        ended.append(time.perf_counter())

    with (
        patch.dict(os.environ, CONSILIA_HOME=str(folder / "home")),
        patch.object(simulation, "Spread", in_turns),
        patch("consilia.federation.session.workers", timed),
    ):
        consilia.run(_plan(run, folder), out=folder / "run", on_round=on_round, engine="ray")
    warm = 4 if many_small(prepared[0]) else 1  # the first rounds try out what is quicker, and build models
    here, there = times[0][warm : warm + run.pairs], times[1][warm : warm + run.pairs]
    return {
        "sites_a_round": run.sites, "rows_a_site": run.rows, "steps": run.steps, "pairs": run.pairs,
        "parameters": prepared[0].model.dim, "faster": quartiles([a / b for a, b in zip(here, there, strict=True)]),
        "process_ms": quartiles([1e3 * one for one in here]), "ray_ms": quartiles([1e3 * one for one in there]),
        "begin_s": digits(began[0]),
    }  # fmt: skip


def _plan(run: Run, folder: Path) -> consilia.Plan:
    rng, count, classes = np.random.default_rng(3), run.sites * run.rows, 10 if run.model == "mnist-cnn" else 2
    np.savez(
        folder / "rows.npz", x_train=rng.integers(0, 256, (count, *run.shape), dtype=np.uint8),
        y_train=rng.integers(0, classes, count), x_test=np.empty((0, *run.shape), np.uint8), y_test=np.empty(0, np.int64),
    )  # fmt: skip
    batches = (
        f'batch = "poisson"\nsampling_rate = {32 / run.rows}' if run.private else 'batch = "fixed"\nbatch_size = 32'
    )
    (folder / "plan.toml").write_text(_PLAN.format(
        classes=json.dumps([str(label) for label in range(classes)]), sites=run.sites, model=run.model, steps=run.steps,
        rounds=2 * run.pairs + 10, batches=batches, privacy=_RECORD if run.private else "",
    ))  # fmt: skip
    return consilia.load(folder / "plan.toml")


def page(result: Json) -> str:
    """Return the page of a result."""
    how, where = result["made"], result["machine"]
    rows = [
        [name, f"{run['parameters']:,}", _ms(run["process_ms"]), _ms(run["ray_ms"]), _span(run["faster"])]
        for name, run in result["runs"].items()
    ]
    begin = quartiles([run["begin_s"] for run in result["runs"].values()])
    head = ["Run", "parameters", "in one process, ms a round", "on Ray, ms a round", "times faster"]
    return f"""# A simulation on a Ray cluster

Written by `{how["command"]}`; commit `{how["commit"][:12]}`, {how["date"]}, {how["seconds"]:.0f} s, Ray {result["ray"]}.
A worker on each of {where["cores"]} cores ({where["processor"]}), shared with the process that runs the plan and Ray's
services; nice {result["nice"]}, load average before {where["load_average"][0]:g}. Wall time of whole rounds, without
evaluation; medians, quartiles in brackets; each ratio is that of neighbours in time. Rows are random numbers: only time is
measured. Below 1 the cluster is a loss.

{table(head, rows)}

**What the cores themselves give**: training steps of the same CNN, without Ray or rounds, are done {_span(result["ceiling"])}
times faster by a bare process on each core than by one: at most their number where they are free, below 1 where other work holds
them. A wide interval says that other work came and went while this was measured.

The cluster and its workers take {begin["median"]:.1f} s to begin ({begin["lower"]:.1f} to {begin["upper"]:.1f}), once a run.
"""


def _span(of: Json) -> str:
    return f"{of['median']:.3g} ({of['lower']:.3g}-{of['upper']:.3g})"


def _ms(of: Json) -> str:
    return f"{of['median']:,.0f} ({of['lower']:,.0f}-{of['upper']:,.0f})"


def small(run: Run) -> Run:
    """Return a run that takes little time, to see that it works."""
    return replace(run, rows=min(run.rows, 64), sites=4, steps=1, pairs=1)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_scale")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    few = parser.parse_args().small
    how, started = made("ray_scale", few), time.monotonic()
    result: Json = {"study": "ray_scale", "made": how, "machine": machine(), "nice": os.nice(0), "runs": {}}
    result["ceiling"] = ceiling(1 if few else 5, 2 if few else 100)
    for name, run in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            result["runs"][name] = measure(small(run) if few else run, Path(folder))
    how["seconds"] = round(time.monotonic() - started, 1)
    result["ray"] = how["versions"]["ray"] = version("ray")
    place = RESULTS / ("ray_scale-small.json" if few else "ray_scale.json")
    place.write_text(json.dumps(result, indent=1) + "\n")
    if not few:
        (ROOT / "benchmarks" / "RAY.md").write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
