"""P5. The same inputs give the same model, bit for bit, in whatever order answers come: sums are taken in order of name."""

from pathlib import Path

import numpy as np
import pytest
from tests.promises.fleet import Case
from tests.promises.scenes import calm

from consilia.rounds.state import from_bytes
from consilia.store.journal import Journal


@pytest.mark.parametrize("mode", ["clear", "dp", "masks-dp"])
def test_the_order_of_arrival_changes_no_bit(mode: str, place: Path, shelf: Path) -> None:
    models = []
    for seed in range(4):
        world = calm(Case(mode, reproducible=True), place / str(seed), shelf, seed=seed)  # other delays, another order
        world.run()
        with Journal.open(world.fleet.journal_path, read_only=True) as journal:
            models.append(from_bytes(journal.state).model)
    assert all(np.array_equal(model, models[0]) for model in models)
    assert np.abs(models[0]).max() > 0
