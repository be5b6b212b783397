"""Threshold RLWE beside TenSEAL: what a sum of ten sites' vectors takes, and how many bytes.

python -m benchmarks.rlwe            # a minute; writes results/rlwe.json and RLWE.md
python -m benchmarks.rlwe --small    # seconds, to see that the script works; no finding

TenSEAL is measured where it is installed (extra `compare`). CPU time, one thread, in a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec

from benchmarks.speed import ONE_THREAD, machine
from benchmarks.study import RESULTS, ROOT, Json, made
from benchmarks.tables import table
from benchmarks.timing.page import spread
from benchmarks.timing.rlwe import STEPS, compare

GOALS = {"encrypt_ratio": 1.0, "bytes_a_value": 24.0}  # of TenSEAL's CKKS to ours; six times float32
HEAD = ["", "encrypt", "into bytes", "add ten", "answer", "open", "bytes a value (x float32)", "encryption, times ours"]


def page(result: Json) -> str:
    """Return the page of a result."""
    how, where, found = result["made"], result["machine"], result["found"]
    schemes: Json = found["schemes"]
    rows = [
        [
            name if theirs else f"**threshold RLWE, {name}**",
            *(spread({part: 1e3 * value for part, value in told[f"{step}_s"].items()})
              if told[f"{step}_s"]["median"] else "-" for step in STEPS),
            f"{told['bytes_a_value']:.3g} ({told['bytes_a_value'] / 4:.3g})", spread(told["encrypt_ratio"]),
        ] for name, told in schemes.items() for theirs in ["error_of_the_sum" in told]
    ]  # fmt: skip
    sizes = [
        [name, f"{told['bytes_a_value']:.4g}", f"{told['asked_bytes_a_value']:.4g}", f"{told['answer_bytes_a_value']:.4g}",
         str(told["flood_bits"]), f"{1e3 * told['key_s_a_site']:.2g}"]
        for name, told in schemes.items() if "flood_bits" in told
    ]  # fmt: skip
    errors = ", ".join(
        f"{told['error_of_the_sum']:.2g} ({name})" for name, told in schemes.items() if "error_of_the_sum" in told
    )
    peer = f"TenSEAL {result['tenseal']}" if result["tenseal"] else "TenSEAL was not installed"
    return f"""# Threshold RLWE

Written by `{how["command"]}`; commit `{how["commit"][:12]}`, {how["date"]}, {how["seconds"]:.0f} s, one thread, load average
{where["load_average"][0]:g} on {where["cores"]} cores shared with other work ({where["processor"]}); numpy
{how["versions"]["numpy"]}, {peer}.

## A sum of {found["sites"]} vectors of {found["values"]:,} values, CPU milliseconds

Medians of {found["turns"]} turns, quartiles in brackets; all schemes run in each turn, and a ratio is of two neighbours.
"Encrypt" is one site's work, "add" the coordinator's for all {found["sites"]}, "answer" that of each of the
{found["threshold"]} sites that open the sum, "open" the coordinator's. Ours encrypts into bytes and adds from bytes; TenSEAL's
vectors are written besides (its "add" reads them). **TenSEAL has one key, and whoever holds it reads every vector.** Its values
have 16 bits; its sums are off by {errors or "-"}; ours are exact.
Goals: encryption no slower than TenSEAL's CKKS; at most 24 bytes a value.

{table(HEAD, rows)}

## Bytes a value

"Asked" goes to each site that opens, "answer" comes back. The flood hides a sum's error; the key is made once a run.

{table(["values", "vector", "asked", "answer", "flood, bits", "key, ms a site"], sizes)}
"""


def measure(small: bool) -> Json:
    """Return the comparison, made in a fresh process with one thread."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.rlwe", "--part", *(["--small"] if small else [])],
        cwd=ROOT, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: Json = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rlwe")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    parser.add_argument("--part", action="store_true", help="measure in this process and print it")
    parser.add_argument("--page", action="store_true", help="only write RLWE.md from the result file")
    options = parser.parse_args()
    if options.part:
        json.dump(compare(5_000, 2) if options.small else compare(100_000, 21), sys.stdout)
        return
    place = RESULTS / ("rlwe-small.json" if options.small else "rlwe.json")
    if options.page:
        result: Json = json.loads(place.read_text(encoding="utf-8"))
    else:
        how, started = made("rlwe", options.small), time.monotonic()
        result = {"study": "rlwe", "made": how, "found": measure(options.small)}
        how["seconds"] = round(time.monotonic() - started, 1)
        how["threads"] = 1
        result["machine"] = machine()
        result["tenseal"] = version("tenseal") if find_spec("tenseal") else None
        place.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not options.small:
        (ROOT / "benchmarks" / "RLWE.md").write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
