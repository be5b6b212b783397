"""FedSGD with noise in shares is central DP-SGD on the union of the rows: same model without noise, same noise in the mean."""

from collections.abc import Callable
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from benchmarks.distributed_noise import MASKS, ONE, SPARE, pooled
from numpy.typing import NDArray

import consilia
from consilia.federation import session
from consilia.federation.simulation import prepare
from consilia.plan.load import from_text

PLAN = """
[data]
source = "heart"
split = "exact"
test_fraction = 0.34
[sites]
counts = "public"
[training]
algorithm = "fedsgd"
batch = "full"
[privacy]
unit = "record"
delta = 1e-3
delta_reason = "a test"
clip_norm = 0.5
"""
CLIP, SITES = 0.5, 4
QUIET, LOUD = 1e-3, 4.0  # noise multipliers
Vector = NDArray[np.float64]
Run = Callable[..., Vector]


def plan(*changes: str, z: float, rounds: int = 1, rate: float = 1.0) -> consilia.Plan:
    return from_text(PLAN, [
        f"privacy.noise_multiplier={z}", f"training.rounds={rounds}", f"training.server_learning_rate={rate}", *changes,
    ])  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Train, and return the model."""
    count = 0

    def train(of: consilia.Plan, *, central: bool = False) -> Vector:
        nonlocal count
        count += 1
        place = tmp_path / f"{count}"
        prepared = pooled(of) if central else prepare(of, Path())
        found = session.start(
            prepared, f"run-{count}", data_folder=Path(), home=place / "home", folder=place / "run", on_round=None
        )
        assert found.summary["skipped"] == 0
        return np.asarray(found.model, np.float64)

    return train


def step(changes: tuple[str, ...], z: float) -> float:
    """Return one step of the grid as it arrives in the mean gradient."""
    agreed = prepare(plan(*changes, z=z), Path()).run_plan
    assert agreed.secure is not None
    weights = [terms.weight for terms in agreed.sites]
    return float(max(weights) / sum(weights) / agreed.secure.grids[0].scale)


def test_without_noise_the_models_are_the_same_up_to_the_grid(run: Run) -> None:
    rounds, rate = 6, 0.5
    shares = run(plan(*MASKS, z=QUIET, rounds=rounds, rate=rate))
    union = run(plan(z=QUIET, rounds=rounds, rate=rate), central=True)
    first = np.asarray(prepare(plan(*MASKS, z=QUIET), Path()).initial, np.float64)
    # A site's rounding moves a coordinate by less than a step and its share of the noise by about as much; so does the central
    # run's own noise. Thirty steps a round are far outside that, and far below what training moves.
    most = rounds * rate * 30 * step(MASKS, QUIET)
    assert most < np.abs(union - first).max() / 100
    assert np.abs(shares - union).max() < most


def test_other_weights_of_sites_would_be_seen(run: Run) -> None:
    right, wrong = (run(plan(*MASKS, *more, z=QUIET)) for more in ((), ("aggregation.weights=uniform",)))
    assert np.abs(right - wrong).max() > 30 * step(MASKS, QUIET)


@pytest.mark.parametrize(("changes", "central", "excess"), [
    ((), True, 1.0),
    (MASKS, False, 1.0),
    ((*MASKS, *SPARE), False, SITES / (SITES - 2)),
    ((), False, float(SITES)),
], ids=["central", "shares", "shares, 1 + 1", "every site its own"])  # fmt: skip
def test_the_noise_in_the_mean(run: Run, changes: tuple[str, ...], central: bool, excess: float) -> None:
    quiet, loud = run(plan(*MASKS, z=QUIET)), plan(*changes, z=LOUD)
    noise = np.concatenate([run(loud, central=central) - quiet for _ in range(25)])
    assert noise.size > 500
    planned = LOUD * CLIP / len(pooled(plan(z=LOUD)).rows[ONE].train) * sqrt(excess)
    tolerated = 4.5 / sqrt(2 * noise.size)
    # Rounding adds at most 1 % to the sensitivity, and with it to noise in shares.
    low, high = planned * (1 - tolerated), planned * (1.011 + tolerated)
    assert low < noise.std() < high
    assert abs(noise.mean()) < 4.5 * planned / sqrt(noise.size)
    assert planned / 1.2 < low < high < planned * 1.2  # a wrong scale would be seen
