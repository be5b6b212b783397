"""Secure aggregation beside Flower's SecAgg+: CPU time of a client and of the server for one weighted mean, in turns.

python -m benchmarks.secagg_flower            # half an hour; writes results/secagg_flower.json and its section of SECAGG.md
python -m benchmarks.secagg_flower --small    # seconds, to see that the script works; no finding

Flower is measured where it is installed (extra `compare`; it wants older releases than requirements.lock pins: give it an
environment of its own). CPU time of all threads, in a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from benchmarks import secagg
from benchmarks.speed import ONE_THREAD, machine
from benchmarks.study import RESULTS, ROOT, Json, made
from benchmarks.timing import flower
from benchmarks.timing.clock import digits, quartiles
from benchmarks.timing.secagg import Setting
from benchmarks.timing.weighted import Weighted

Vector = NDArray[np.float64]

SCALE = flower.STEPS / (2 * flower.RANGE)  # the same step as theirs


@dataclass(frozen=True)
class Case:
    """One row: sites, words, sites that drop out, turns."""

    sites: int
    dim: int
    dropouts: int
    turns: int


CASES = (
    Case(10, 100_000, 0, 11),
    Case(10, 100_000, 1, 11),
    Case(10, 100_000, 3, 11),
    Case(50, 100_000, 0, 3),
    Case(50, 100_000, 15, 3),
)
SMALL = (Case(5, 2_000, 1, 1),)


def measure(case: Case) -> Json:
    """Play a case's rounds in turns, ours and Flower's on the same vectors and weights, and return what they took."""
    shape = Setting(case.sites, case.dim, case.dropouts, watched=case.sites, repeats=case.turns)
    vectors = np.random.default_rng(1).normal(size=(case.sites, case.dim)).astype(np.float32)
    weights = np.linspace(flower.MOST // 10, flower.MOST, case.sites).astype(np.int64)
    taken: dict[str, list[dict[str, float]]] = {"ours": [], "flower": []}
    more: Json = {}
    for _ in range(case.turns):
        play = Weighted(shape, vectors, weights, cut=flower.RANGE, scale=SCALE)
        told = play.play()
        clients = [one["cpu"] for one in told["client"]]
        taken["ours"].append(_of(clients, told["server"]["cpu"]))
        stays = [index for index, name in enumerate(play.session.cohort) if name not in play.silent]
        exact = np.average(vectors[stays].astype(np.float64), axis=0, weights=weights[stays])
        more["ours"] = _told(play.mean, exact, max(play.sent.values()) / (4 * case.dim), {
            "client": told["client"][0]["stages"], "server": told["server"]["stages"]}, told["threshold"])  # fmt: skip
        if find_spec("flwr"):
            other = flower.one_round(vectors, weights, set(range(case.sites)) - set(stays))
            taken["flower"].append(_of(other.clients, other.server))
            more["flower"] = _told(other.mean, exact, other.bytes_up / (4 * case.dim), other.stages,
                                   round(flower.SHARE * case.sites))  # fmt: skip
    parts = taken["ours"][0].keys()
    found: Json = {"sites": case.sites, "dim": case.dim, "dropouts": case.dropouts, "turns": case.turns}
    for name, runs in taken.items():
        if runs:
            found[name] = {
                **{f"{part}_ms": quartiles([1e3 * one[part] for one in runs]) for part in parts},
                **more[name],
            }
    if taken["flower"]:
        pairs = list(zip(taken["ours"], taken["flower"], strict=True))
        found["times_less"] = {part: quartiles([theirs[part] / mine[part] for mine, theirs in pairs]) for part in parts}
    return found


def _of(clients: Sequence[float], server: float) -> dict[str, float]:
    return {"client": float(np.median(clients)), "server": server}


def _told(mean: Vector, exact: Vector, bytes_up: float, stages: dict[str, dict[str, float]], threshold: int) -> Json:
    stages_ms = {who: {stage: digits(1e3 * taken) for stage, taken in parts.items()} for who, parts in stages.items()}
    return {"threshold": threshold, "error": digits(float(np.abs(mean - exact).max())),
            "bytes_up_over_float32": digits(bytes_up), "last_turn_stages_ms": stages_ms}  # fmt: skip


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.secagg_flower")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    parser.add_argument("--part", action="store_true", help="measure in this process and print it")
    options = parser.parse_args()
    if options.part:
        measure(*SMALL)  # what is only paid once, is paid
        json.dump([measure(case) for case in (SMALL if options.small else CASES)], sys.stdout)
        return
    if not (options.small or find_spec("flwr")):
        parser.error("install the extra `compare` in an environment of its own first")
    how, started = made("secagg_flower", options.small), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.secagg_flower", "--part", *(["--small"] if options.small else [])],
        cwd=ROOT, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    how["seconds"] = round(time.monotonic() - started, 1)
    result: Json = {"study": "secagg_flower", "made": how, "machine": machine(),
                    "flwr": version("flwr") if find_spec("flwr") else None, "cases": json.loads(done.stdout)}  # fmt: skip
    place = RESULTS / ("secagg_flower-small.json" if options.small else "secagg_flower.json")
    place.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not options.small:
        secagg.write_page()


if __name__ == "__main__":
    main()
