"""P4. No late update is counted: an answer names its round and the model it came from, and counts for no other."""

from pathlib import Path

import pytest
from tests.promises.fleet import Case
from tests.promises.scenes import calm


@pytest.mark.parametrize("mode", ["clear", "masks"])
def test_answers_later_than_their_round_are_in_no_model(mode: str, place: Path, shelf: Path) -> None:
    """The oracle computes each model again from the answers of its own round: a late one in it would show."""
    late = 0
    for seed in range(8):
        world = calm(Case(mode, rounds=4), place / str(seed), shelf, {"delay": 0.15}, seed).run()
        late += len(world.chance.fired)
    assert late > 20
