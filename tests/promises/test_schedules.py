"""A thousand random schedules of whole runs break no promise; which faults they had is counted, so that none is idle."""

from collections import Counter
from pathlib import Path

import pytest
from tests.promises.chance import FAULTS
from tests.promises.oracle import ViolationError
from tests.promises.schedules import run

SHARDS, EACH = 20, 50


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_schedule_breaks_no_promise(shard: int, place: Path, shelf: Path) -> None:
    happened: Counter[str] = Counter()
    rounds: Counter[str] = Counter()
    for seed in range(shard * EACH, (shard + 1) * EACH):
        try:
            world = run(seed, place / "run", shelf)
        except (ViolationError, Exception) as error:
            raise AssertionError(f"schedule {seed}; again: python -m tests.promises.schedules {seed}") from error
        happened.update(text.partition(":")[0] for _, text in world.chance.fired)
        rounds.update(world.oracle.statuses)
    assert set(happened) == set(FAULTS), happened  # a shard without a fault of some kind tries less than it says
    assert rounds["counted"] >= EACH, rounds
