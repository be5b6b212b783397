"""Secure aggregation: CPU time of a site and of the coordinator beside the masks alone, and bytes a site sends.

python -m benchmarks.secagg            # minutes; writes results/secagg.json and SECAGG.md
python -m benchmarks.secagg --small    # seconds, to see that the script works; no finding
"""

import argparse
import json
import time

import torch

from benchmarks.speed import machine
from benchmarks.study import RESULTS, ROOT, Json, made
from benchmarks.tables import table
from benchmarks.timing import flower_page, secure_round
from benchmarks.timing.secagg import Setting, sessions

SETTINGS = (
    Setting(10, 100_000, 0, repeats=5),
    Setting(10, 1_000_000, 3, repeats=5),
    Setting(50, 100_000, 15),
    Setting(100, 1_000_000, 0, repeats=1),
    Setting(100, 1_000_000, 30),
    Setting(500, 100_000, 150, adversary="passive", repeats=1),
    Setting(500, 100_000, 150, repeats=1),
)
BESIDE = {"secagg_flower": flower_page.section, "secagg_round": secure_round.section}
SMALL = (Setting(6, 10_000, 1, watched=2, repeats=1),)


def page(result: Json) -> str:
    """Return the page of a result."""
    how, where = result["made"], result["machine"]
    rows = [
        [f"{one['sites']}", f"{one['dim']:,}", f"{one['dropouts']}", one["adversary"], f"{one['neighbours']}, {one['threshold']}",
         _span(one["client_cpu_ms"]), f"{one['client_masks']}", _span(one["client_ratio"]),
         _span(one["server_cpu_ms"]), f"{one['server_masks']:,}", _span(one["server_ratio"]),
         f"{one['bytes_up_over_float32']:.4f}"]
        for one in result["settings"]
    ]  # fmt: skip
    head = ["Sites", "Words", "Drop out", "Adversary", "Neighbours, t", "Site, CPU ms", "its masks", "over masks alone",
            "Coordinator, CPU ms", "its masks", "over masks alone", "Bytes up / float32"]  # fmt: skip
    return f"""# Secure aggregation, timed

Written by `{how["command"]}`; commit `{how["commit"][:12]}`, {how["date"]}, {how["seconds"]:.0f} s, one thread, load average
{where["load_average"][0]:g} on {where["cores"]} cores shared with other work ({where["processor"]}). Medians, quartiles in
brackets where there are several; each ratio is that of neighbours in time.

All of a session in process, without a network: keys, signatures, sharing, masks, votes, unmasking; 32-bit words. "Masks
alone" is the AES-256-CTR keystream and the additions of as many masks, in the same blocks and in the same run: what no
implementation of this protocol can do without. Sites that drop out do so after they shared their keys, when it costs most.
A site's time is that of five watched sites; signatures and keys weigh more the fewer words there are. With 500 sites, of which
three tenths may drop out, a passive coordinator needs neighbourhoods of 142. Against an active one, where two thirds of each
must answer, they would be 452 of 499, so everyone is everyone's neighbour. Where neighbourhoods are sparse, each site of a real
session also takes about 50 ms for the ring's order (scrypt), which the sites of one process work out once.

{table(head, rows)}
"""


def text() -> str:
    """Return the page of the result files: this one's, then what else was measured."""
    parts = [page(_read("secagg"))]
    parts += [section(_read(name)) for name, section in BESIDE.items() if (RESULTS / f"{name}.json").exists()]
    return "\n".join(parts)


def _read(name: str) -> Json:
    result: Json = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return result


def write_page() -> None:
    """Write SECAGG.md."""
    (ROOT / "benchmarks" / "SECAGG.md").write_text(text(), encoding="utf-8")


def _span(of: Json) -> str:
    plain = f"{of['median']:.3g}"
    return plain if of["lower"] == of["upper"] else f"{plain} ({of['lower']:.3g}-{of['upper']:.3g})"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.secagg")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    small = parser.parse_args().small
    torch.set_num_threads(1)
    how, started = made("secagg", small), time.monotonic()
    result: Json = {
        "study": "secagg",
        "made": how,
        "settings": [sessions(one) for one in (SMALL if small else SETTINGS)],
    }
    how["seconds"] = round(time.monotonic() - started, 1)
    result["machine"] = machine()
    place = RESULTS / ("secagg-small.json" if small else "secagg.json")
    place.write_text(json.dumps(result, indent=1) + "\n")
    if not small:
        write_page()


if __name__ == "__main__":
    main()
