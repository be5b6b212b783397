"""P9. A model that is published is finite and, where the plan has a stop-loss, no worse than the last good one by more than
that; otherwise the round is void: its charge stays, and so does the last good model.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.promises.fleet import DIM, Case, Rows
from tests.promises.scenes import calm
from tests.promises.world import World

from consilia.rounds.ports import Score, Trained
from consilia.rounds.state import from_bytes

STOP_LOSS = Case("clear", rounds=4, reproducible=True, stop_loss=0.2)


def _records(world: World) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(world.fleet.journal_path)) as sql:
        return [json.loads(row[0]) for row in sql.execute("SELECT record FROM records ORDER BY round")]


def test_a_round_worse_than_the_stop_loss_is_void(place: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[np.ndarray] = []

    def evaluate(self: Rows, payload: np.ndarray, local: object) -> Score:
        if not shown or not np.array_equal(shown[-1], payload):
            shown.append(payload.copy())
        right = 2 if len(shown) == 3 else 5  # the third model that is scored is a bad one
        return Score(right, 1.0, 10)

    monkeypatch.setattr(Rows, "evaluate", evaluate)
    world = calm(STOP_LOSS, place, shelf)
    monkeypatch.setattr(world.oracle, "ended", lambda _: None)  # it knows of no stop-loss
    world.run()
    records = _records(world)
    assert [record["status"] for record in records] == ["counted", "counted", "skipped", "counted"]
    assert records[2]["reason"] == "accuracy 0.200, more than 0.2 below 0.500; the last good model stays"
    models = {number: [np.frombuffer(one, "<f4") for one in world.oracle.models[number]] for number in (3, 4)}
    assert np.array_equal(models[3][0], models[4][0])  # round 4 begins where round 3 did
    with closing(sqlite3.connect(world.fleet.journal_path)) as sql:
        state = from_bytes(sql.execute("SELECT state FROM state").fetchone()[0])
    assert (state.skipped, set(state.counted.values())) == (1, {4})


@pytest.mark.parametrize("value", [np.float32(3e38), np.float32(-3e38)])
def test_a_step_that_overflows_is_void(
    value: np.float32, place: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rows, "train", lambda *_: Trained(np.full(DIM, value, np.float32), {}, None))
    case = Case("clear", rounds=3, reproducible=True)
    world = calm(case, place, shelf)
    monkeypatch.setattr(world.oracle, "ended", lambda _: None)  # its learner is another
    world.run()
    assert any(record["status"] == "skipped" and "not finite" in record["reason"] for record in _records(world))
    with closing(sqlite3.connect(world.fleet.journal_path)) as sql:
        assert np.isfinite(from_bytes(sql.execute("SELECT state FROM state").fetchone()[0]).model).all()
