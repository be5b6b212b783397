"""A whole round of a hundred simulated sites, in the clear and under masks.

python -m benchmarks.secagg_round            # two minutes; writes results/secagg_round.json and its section of SECAGG.md
python -m benchmarks.secagg_round --small    # seconds, to see that the script works; no finding
"""

import argparse
import json
import time

import torch

from benchmarks import secagg
from benchmarks.speed import machine
from benchmarks.study import RESULTS, Json, made
from benchmarks.timing.secure_round import primitives, rounds


def measure(sites: int, count: int) -> Json:
    """Return both kinds of rounds, and what the dearest primitives take beside them."""
    return {
        "sites": sites,
        "clear": rounds("clear", sites, 4 * count),
        "masks": rounds("masks", sites, count),
        **primitives(100 * count),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.secagg_round")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    small = parser.parse_args().small
    torch.set_num_threads(1)
    how, started = made("secagg_round", small), time.monotonic()
    result: Json = {"study": "secagg_round", "made": how, **(measure(5, 1) if small else measure(100, 7))}
    how["seconds"] = round(time.monotonic() - started, 1)
    result["machine"] = machine()
    place = RESULTS / ("secagg_round-small.json" if small else "secagg_round.json")
    place.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not small:
        secagg.write_page()


if __name__ == "__main__":
    main()
