"""The section of SECAGG.md that stands beside Flower."""

from benchmarks.study import Json
from benchmarks.tables import table
from benchmarks.timing.page import spread

GOAL = 5.0  # times less CPU than Flower's
HEAD = [
    "Sites", "Words", "Drop out", "Ours: site, CPU ms", "coordinator", "Flower: client, CPU ms", "server",
    "Times less: site", "coordinator", "Error of the mean: ours", "Flower", "Bytes up / float32: ours", "Flower",
]  # fmt: skip


def section(result: Json) -> str:
    """Return the section of a result."""
    how, where = result["made"], result["machine"]
    return f"""## Beside Flower's SecAgg+

Written by `{how["command"]}`; commit `{how["commit"][:12]}`, {how["date"]}, {how["seconds"]:.0f} s, load average
{where["load_average"][0]:g} on {where["cores"]} cores shared with other work ({where["processor"]}); flwr {result["flwr"]},
numpy {how["versions"]["numpy"]}. CPU time of all threads (Flower shares secrets in a pool of them), medians, quartiles in
brackets. The two play in turns on the same vectors and weights, and a ratio is of neighbours. Goal: {GOAL:g} times less.

From float32 vectors to their weighted mean, in one process, without a network. Flower's part is its own `SecAggPlusWorkflow`
and `secaggplus_mod` as released, with a call in place of its connection; the call is not timed, nor is training. Everyone shares
masks with everyone and two thirds must answer; both round at random to steps of 2^-18 within [-8, 8]; who drops out does so
after sharing keys. A site's time is the median of those that stay.

Flower's figures include what ours do not: NumPy's file format for vectors, checks and copies of configuration records, and
FedAvg's taking up of the results. Ours include what Flower's do not: signatures, commitments to all shares, and the vote on
who survives. Quantising and its way back are in both; nobody stores a state. The keys of Flower's masks have at most 32 bits
that an attacker must guess, ours 256; its weights go to the server in the clear, ours are public numbers of the plan.

**Our integer sums are checked to be exact**: the errors are the rounding's, of the worst coordinate.

{table(HEAD, [_row(case) for case in result["cases"]])}
"""


def _row(case: Json) -> list[str]:
    ours, flower, less = case["ours"], case["flower"], case["times_less"]
    return [
        str(case["sites"]), f"{case['dim']:,}", str(case["dropouts"]),
        *(spread(told[f"{part}_ms"]) for told in (ours, flower) for part in ("client", "server")),
        *(f"**{spread(less[part])}**" for part in ("client", "server")),
        *(f"{told['error']:.1e}" for told in (ours, flower)),
        *(f"{told['bytes_up_over_float32']:.2f}" for told in (ours, flower)),
    ]  # fmt: skip
