"""Packed Paillier beside naive Paillier: what a sum of ten sites' vectors takes, and how many bytes.

python -m benchmarks.paillier            # five minutes; writes results/paillier.json and PAILLIER.md
python -m benchmarks.paillier --small    # seconds, to see that the script works; no finding

`phe` is measured where it is installed (extra `compare`), with gmpy2, which it uses too. CPU time, one thread.
"""

import argparse
import json
import time
from importlib.metadata import version
from importlib.util import find_spec

import torch

from benchmarks.speed import machine
from benchmarks.study import RESULTS, ROOT, Json, made
from benchmarks.tables import table
from benchmarks.timing.paillier import SITES, STEPS, compare

GOAL = 1000
OURS = [
    "key, bits",
    "lanes a ciphertext",
    "encrypt, s",
    "add, s",
    "decrypt, s",
    "bytes a value (x float32)",
    "key, s",
    "table, s",
]
THEIRS = ["key, bits", "`phe`: encrypt, ms a value", "add, ms", "decrypt, ms", "bytes a value", "times faster: encrypt", "add",
          "decrypt", "sum"]  # fmt: skip
PACKAGES = ("gmpy2", "phe", "cryptography")


def measure(small: bool) -> Json:
    """Return the comparison for each length of key."""
    if small:
        return {"2048": compare(2048, 2_000, 4, 1)}
    return {str(bits): compare(bits, 100_000, 24, 5) for bits in (3072, 2048)}


def page(result: Json) -> str:
    """Return the page of a result."""
    how, where, keys = result["made"], result["machine"], result["keys"]
    ours = [
        [bits, f"{key['lanes']} of {key['lane_bits']} bits", *(_span(key[f"{step}_s"]) for step in STEPS),
         f"{key['bytes_a_value']:.3g} ({key['bytes_a_value'] / 4:.3g})", f"{key['key_s']:.2g}", f"{key['table_s']:.2g}"]
        for bits, key in keys.items()
    ]  # fmt: skip
    theirs = [
        [bits, *(_span(key["phe"][f"{step}_s_a_value"], 1000) for step in STEPS), f"{key['phe']['bytes_a_value']:g}",
         *(_span(key["phe"][f"{step}_times"]) for step in (*STEPS, "sum"))]
        for bits, key in keys.items() if "phe" in key
    ]  # fmt: skip
    plain = [[bits, *(f"{key['without_gmp'][f'{step}_times']:.2g}" for step in STEPS)] for bits, key in keys.items()]
    one = next(iter(keys.values()))
    packages = ", ".join(f"{name} {number}" for name, number in result["packages"].items())
    return f"""# Packed Paillier

Written by `{how["command"]}`; commit `{how["commit"][:12]}`, {how["date"]}, {how["seconds"]:.0f} s, one thread, load average
{where["load_average"][0]:g} on {where["cores"]} cores shared with other work ({where["processor"]}); {packages}. CPU seconds;
medians of {one["turns"]}, quartiles in brackets. Nothing is scaled up: every figure of ours is for all {one["values"]:,} values.

## A sum of {SITES} vectors of {one["values"]:,} values

Values of 16 bits. "Encrypt" is one site's work, "add" the coordinator's for all {SITES}, "decrypt" that of the one site that
opens the sum. The key is made once a run, the table once a process.

{table(OURS, ours)}

## Beside `phe`, one value a ciphertext

Both in turns, `phe` on {one.get("phe", {}).get("values", 0)} values. "Sum" is a value's whole way: encrypted at {SITES} sites,
added, decrypted. Goal: {GOAL} times for encryption and for the sum. Decryption gains from packing alone, and pays for raising to
the secret power in constant time, which `phe` does not do.

{table(THEIRS, theirs)}

## Without gmpy2

Python's own integers give the same bytes, this many times as slowly ({one["without_gmp"]["values"]:,} values):

{table(["key, bits", "encrypt", "add", "decrypt"], plain)}
"""


def _span(of: Json, unit: float = 1) -> str:
    return f"{_plain(unit * of['median'])} ({_plain(unit * of['lower'])}-{_plain(unit * of['upper'])})"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paillier")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    parser.add_argument("--page", action="store_true", help="only write PAILLIER.md from the result file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    place = RESULTS / ("paillier-small.json" if options.small else "paillier.json")
    if options.page:
        result: Json = json.loads(place.read_text(encoding="utf-8"))
    else:
        how, started = made("paillier", options.small), time.monotonic()
        result = {"study": "paillier", "made": how, "keys": measure(options.small)}
        how["seconds"] = round(time.monotonic() - started, 1)
        result["machine"] = machine()
        result["packages"] = {name: version(name) for name in PACKAGES if find_spec(name)}
        place.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not options.small:
        (ROOT / "benchmarks" / "PAILLIER.md").write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
