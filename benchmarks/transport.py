"""Rounds between processes over gRPC with mutual TLS, beside the same bytes over bare TLS sockets to the same processes.

python -m benchmarks.transport            # two minutes; writes results/transport.json and TRANSPORT.md
python -m benchmarks.transport --small    # seconds, to see that the script works; no finding
"""

import argparse
import json
import time
from importlib.metadata import version

from benchmarks.speed import machine
from benchmarks.study import RESULTS, ROOT, Json, made
from benchmarks.tables import table
from benchmarks.timing.links import SMALL, Step, beside_bare, memory, plain, running, secure_over_plain

GOAL, SECURE_GOAL = 3, 4
SITES, PARAMETERS = 5, 1_000_000
MANY = 20


def measure(small: bool) -> Json:
    """Return what every part measured."""
    parameters, pairs, large = (300_000, 5, 4_000_000) if small else (PARAMETERS, 60, 40_000_000)
    one_message = [Step(SMALL, SMALL)]
    with running(SITES) as both:
        found: Json = {
            "sites": SITES, "parameters": parameters,
            "plain": beside_bare(both, plain(parameters), pairs),
            "secure": secure_over_plain(both, parameters, SITES, pairs),
            "small": beside_bare(both, one_message, 5 * pairs),
            "memory": [memory(both, SITES, large, 3)],
        }  # fmt: skip
    with running(SITES, "durable") as both:
        found["durable"] = beside_bare(both, plain(parameters), pairs)
        found["small_durable"] = beside_bare(both, one_message, 5 * pairs)
    with running(1) as both:
        found["one"] = beside_bare(both, one_message, 5 * pairs)
    if not small:
        with running(MANY) as both:
            found["memory"].append(memory(both, MANY, large, 3))
    return found


def page(result: Json) -> str:
    """Return the page of a result."""
    how, where, found = result["made"], result["machine"], result["found"]
    rows = [
        [name, *(_span(found[key][part]) for part in ("hub_ms", "bare_ms", "ratio", "coordinator_cpu_ratio"))]
        for name, key in (
            (f"A plain round: {found['parameters']:,} float32 down to {found['sites']} sites and up", "plain"),
            ("the same, with each site's durable memory of messages", "durable"),
            (f"{SMALL} bytes to {found['sites']} sites and back", "small"),
            ("the same, with durable memory", "small_durable"), (f"{SMALL} bytes to one site and back", "one"),
        )
    ]  # fmt: skip
    memory_rows = [
        [
            str(one["sites"]),
            f"{one['answer_mb']:g}",
            _span(one["growth_mb"]),
            f"{one['answer_mb'] + 0.064 * one['sites']:.3g}",
        ]
        for one in found["memory"]
    ]
    four = found["secure"]
    return f"""# Transport, timed

Written by `{how["command"]}`; commit `{how["commit"][:12]}`, {how["date"]}, {how["seconds"]:.0f} s, load average
{where["load_average"][0]:g} on {where["cores"]} cores shared with other work ({where["processor"]}); grpcio {result["grpcio"]}.
Medians, quartiles in brackets; a ratio is of neighbours in time.

Coordinator and sites are processes of one machine, over loopback. A bare socket moves the same bytes to and from the same
processes over mutual TLS, a thread for each at the coordinator, and keeps them in memory: no framing, no checks, no files. The
hub hashes every message at both ends (SHA-256), keeps large ones in files and confirms each megabyte.

{table(["", "hub, ms", "bare TLS, ms", "ratio", "ratio of the coordinator's CPU"], rows)}

Goal of the plain round, of transport alone: {GOAL}. "Durable memory": each site commits a message before it is handled and its
answer, with all its bytes, before it is sent (SQLite, synchronous; here five sites share one disk). A bare socket has nothing
like it, and counted with it a round of this size is over the goal.

A secure round of four stages (model down and keys up; keys and shares; masked update up; what opens the sum) takes
{_span(four["secure_ms"])} ms of transport, {_span(four["ratio"])} times the {_span(four["plain_ms"])} ms of a plain
round beside it. Goal: {SECURE_GOAL}.

## Memory of the coordinator

Memory that no file backs, beyond what it was before, while every site sends an answer of this size at once and all of them are
kept; the most at any millisecond. Goal: one message and 64 kB a site.

{table(["sites", "answer, MB", "growth, MB", "goal, MB"], memory_rows)}
"""


def _span(of: Json) -> str:
    return f"{of['median']:.3g} ({of['lower']:.3g}-{of['upper']:.3g})"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transport")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    parser.add_argument("--page", action="store_true", help="only write TRANSPORT.md from the result file")
    options = parser.parse_args()
    place = RESULTS / ("transport-small.json" if options.small else "transport.json")
    if options.page:
        result: Json = json.loads(place.read_text(encoding="utf-8"))
    else:
        how, started = made("transport", options.small), time.monotonic()
        result = {"study": "transport", "made": how, "grpcio": version("grpcio"), "found": measure(options.small)}
        how["seconds"] = round(time.monotonic() - started, 1)
        result["machine"] = machine()
        place.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not options.small:
        (ROOT / "benchmarks" / "TRANSPORT.md").write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
