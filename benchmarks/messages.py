"""Small messages on Adult: bytes that go up, and what they cost in accuracy. No privacy."""

from statistics import median

import consilia
from benchmarks.adult import OPEN
from benchmarks.study import PLANS, Case, Json, Study, by_name, column, main, run_cases, seeds
from benchmarks.tables import percent, points, provenance, table

FULL = "float32"
SIZES: dict[str, tuple[str, ...]] = {
    FULL: (),
    "int8": ("messages.quantize_bits=8",),
    "int4": ("messages.quantize_bits=4",),
    "int2": ("messages.quantize_bits=2",),
    "top-k 1 %": ("messages.top_k=0.01",),
    "random-k 10 %": ("messages.random_k=0.1",),
}
SLOWER = "random-k 10 %, a tenth of the rate"
HEAD = ["messages", "bytes up, a site and round", "fewer bytes", "test accuracy, %", "against float32, points"]


def sizes(rate: float) -> dict[str, tuple[str, ...]]:
    """Return the rows: how messages are made smaller, by name.

    Args:
        rate: The server's learning rate of the rows at full size; random-k multiplies what it sends by 10, so its last row
            takes a tenth.
    """
    return {**SIZES, SLOWER: (*SIZES["random-k 10 %"], f"training.server_learning_rate={rate / 10:g}")}


def upload(plan: consilia.Plan, result: consilia.RunResult) -> Json:
    """Return the bytes of one site's answer in one round: the whole frame, in rounds that nobody scored."""
    found = [r["bytes_up"] / len(r["answered"]) for r in result.records if r["accuracy"] is None and r["answered"]]
    return {"bytes_a_message": round(median(found))}


def rows(cases: dict[str, Json]) -> list[list[str]]:
    """Return the table's rows; cases by row name, float32 among them."""
    full = cases[FULL]
    size, found = sum(column(full, "bytes_a_message")), []
    for name, case in cases.items():
        lost = [a - b for a, b in zip(column(case, "accuracy"), column(full, "accuracy"), strict=True)]
        own = column(case, "bytes_a_message")
        found.append(
            [name, f"{sum(own) / len(own):,.0f}", "-" if case is full else f"{100 * (1 - sum(own) / size):.1f} %",
             percent(column(case, "accuracy")), "-" if case is full else points(lost)]
        )  # fmt: skip
    return found


def measure(small: bool) -> Json:
    common = ("model.name=mlp", "evaluation.every=1000000", *OPEN["mlp"])
    short = ("training.rounds=4", "data.train_rows=1000") if small else ()
    cases = [
        Case(name, PLANS / "adult-open.toml", (*common, *changes, *short), seeds(1, 3, small=small), {"messages": name})
        for name, changes in sizes(0.5).items()
    ]
    return {"cases": run_cases(cases, score=upload)}


def section(result: Json) -> str:
    n = len(result["cases"][0]["seeds"])
    return f"""## Small messages: Adult, five sites, three asked a round

{table(HEAD, rows(by_name(result)))}

The MLP of the first Adult table without privacy (6,978 parameters, one full-batch gradient a site and round, 600 rounds,
server momentum 0.9), {n} seeds; differences are taken seed by seed. Bytes are whole frames, headers included; the model
goes down as float32 in every row. Rounding is stochastic, so its error has mean zero and later rounds average it out;
top-k sends later what it left out. Random-k multiplies what it sends by 10: with momentum and the rate of the other rows its
steps are too long, and at a tenth of that rate, chosen on a quarter of the training rows held out, most is won back.

{provenance(result)}"""


STUDY = Study("messages", measure, section)

if __name__ == "__main__":
    main(STUDY)
