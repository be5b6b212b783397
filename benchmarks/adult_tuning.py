"""How the settings of the Adult studies were chosen: on the official training rows alone, a quarter of them held out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from benchmarks import adult_clip, adult_published
from benchmarks.study import PLANS, Case, Json, Study, column, main, run_cases
from benchmarks.tables import provenance, table
from consilia.data.builtin import adult
from consilia.data.table import Table

OPEN, PRIVATE = PLANS / "adult-open.toml", PLANS / "adult.toml"
QUIET = "evaluation.every=1000000"


def grid() -> Iterator[Case]:
    """Yield what was tried: one seed each, since it only has to choose."""

    def case(use: str, name: str, base: str, *changes: str) -> Case:
        plan = OPEN if base == "open" else PRIVATE
        return Case(f"{use}: {name}", plan, (QUIET, *changes), (1,), {"use": use, "setting": name})

    for rounds, rate in (("300", "3"), ("600", "3"), ("600", "5"), ("1000", "5")):
        yield case("logistic, none", f"{rounds} rounds, rate {rate}", "open", "model.name=logistic",
                   f"training.rounds={rounds}", f"training.server_learning_rate={rate}")  # fmt: skip
    for rounds, rate in (("300", "0.3"), ("600", "0.5"), ("1000", "0.5")):
        yield case("mlp, none", f"{rounds} rounds, rate {rate}", "open", "model.name=mlp",
                   f"training.rounds={rounds}", f"training.server_learning_rate={rate}")  # fmt: skip
    for epsilon in ("1", "5"):
        for model, rates in (("logistic", ("1", "3")), ("mlp", ("0.5", "1", "2"))):
            for rate in rates:
                yield case(f"{model}, epsilon {epsilon}", f"200 rounds, rate {rate}", "private", f"model.name={model}",
                           f"privacy.epsilon={epsilon}", f"training.server_learning_rate={rate}")  # fmt: skip
    for stated in ("5", "1"):
        z = 2 * adult_published.multiplier(float(stated))
        for rate in ("0.1", "0.03", "0.01"):
            yield case(f"same shape as published, {stated}", f"local rate {rate}", "open", *adult_published.SHAPE[:-1],
                       "training.rounds=10", f"training.learning_rate={rate}", "privacy.unit=record", "privacy.delta=1e-5",
                       "privacy.clip_norm=1", f"privacy.noise_multiplier={z!r}")  # fmt: skip
    for rate in ("0.1", "0.3", "1"):
        shape = [c for c in adult_clip.SHAPE[:-1] if not c.startswith("training.learning_rate")]
        yield case("clip norm and epochs (C 1, 2 epochs, epsilon 1)", f"local rate {rate}", "private", *shape,
                   "training.rounds=30", "training.local_epochs=2", f"training.learning_rate={rate}")  # fmt: skip


def training_rows() -> Table:
    """Return the official training rows, a quarter of them marked for testing; no official test row is in it."""
    whole = _load()
    assert whole.official_test is not None
    rows = whole.take(np.flatnonzero(~whole.official_test))
    held_out = np.zeros(len(rows), dtype=np.bool_)
    held_out[np.random.default_rng(7).permutation(len(rows))[: len(rows) // 4]] = True
    return replace(rows, official_test=held_out)


_load = adult.load


@contextmanager
def without_test_rows() -> Iterator[None]:
    """Let plans that name the built-in table see its training rows only."""
    with patch.object(adult, "load", training_rows):
        yield


def measure(small: bool) -> Json:
    tried = list(grid())
    if small:
        short = ("training.rounds=1", "data.train_rows=500")
        tried = [replace(case, changes=(*case.changes, *short)) for case in tried[::5]]
    with without_test_rows():
        return {"cases": run_cases(tried)}


def section(result: Json) -> str:
    uses: dict[str, list[str]] = {}
    for case in result["cases"]:
        found = f"{case['labels']['setting']}: {100 * column(case, 'accuracy')[0]:.2f}"
        uses.setdefault(case["labels"]["use"], []).append(found)
    rows = [[use, "; ".join(tried)] for use, tried in uses.items()]
    return f"""### How the settings of the Adult studies were chosen

{table(["for", "tried: accuracy on held-out training rows, %"], rows)}

The official test rows are not read here: the 32,561 training rows alone, a random quarter of them held out, one seed and
one run each. This is a second run of the search: the settings were fixed after a first one with a throw-away script and the
same held-out rows, and private rows come out anew each time, so the best of a row need not be the one taken. Differences
below about .3 points are within chance; the MLP's rate 0.5 at both budgets is such a choice.
**This search is not charged**: with private training rows each of these runs would have cost its own epsilon.

{provenance(result)}"""


STUDY = Study("adult_tuning", measure, section)

if __name__ == "__main__":
    main(STUDY)
