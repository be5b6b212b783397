"""The small parts of the loop: quorum, which model is kept, records, state, geometry, randomness, the result."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rounds.bench import heart

from consilia.core.errors import PlanError, StoreError
from consilia.core.randomness import SharedSeed
from consilia.federation.simulation import prepare
from consilia.plan.load import from_text
from consilia.rounds.entropy import Entropy
from consilia.rounds.gather import quorum
from consilia.rounds.geometry import cosines, norms
from consilia.rounds.records import RoundRecord, summarise
from consilia.rounds.result import binding_accountant
from consilia.rounds.rows import site_rows
from consilia.rounds.selection import keep, result_model
from consilia.rounds.state import TrainingState, from_bytes, to_pieces


@pytest.mark.parametrize(
    ("share", "asked", "needed"),
    [(0.5, 4, 2), (0.7, 10, 7), (0.51, 4, 3), (1.0, 3, 3), (3.0, 10, 3), (0.01, 5, 1), (0.5, 0, 1)],
)
def test_quorum(share: float, asked: int, needed: int) -> None:
    assert quorum(share, asked) == needed


def scored(round_number: int, accuracy: float | None) -> RoundRecord:
    return RoundRecord(round_number, accuracy=accuracy)


def test_best_is_kept_and_patience_ends_training() -> None:
    state = TrainingState(np.zeros(1, np.float32))
    for number, accuracy in enumerate([0.5, 0.7, 0.7, None, 0.6], start=1):
        state.model = np.full(1, number, np.float32)
        keep(state, scored(number, accuracy), patience=2)
    assert result_model("best", state)[0] == 2
    assert result_model("last", state)[0] == 5
    assert state.stopped == "no better model in 2 evaluations; best was round 2"


def test_the_tail_average_is_a_mean_and_falls_back_to_the_last() -> None:
    state = TrainingState(np.full(2, 7, np.float32))
    assert result_model("tail-average", state).tolist() == [7, 7]
    assert result_model("best", state).tolist() == [7, 7]
    state.tail, state.tail_count = np.array([2.0, 4.0]), 2
    assert result_model("tail-average", state).tolist() == [1, 2]


def test_state_survives_its_bytes_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    state = TrainingState(
        rng.standard_normal(5).astype(np.float32), control=rng.standard_normal(5).astype(np.float32),
        moments={"m": rng.standard_normal(5), "v": rng.standard_normal(5)}, round=3, counted={"a": 2}, charges={"a": [3]},
        evaluations=1, tail=rng.standard_normal(5), tail_count=2, best=rng.standard_normal(5).astype(np.float32),
        best_score=0.1 + 0.2, best_round=1, stale=1, bytes_up=5, bytes_down=6, seconds=0.1, stopped="why",
    )  # fmt: skip
    again = from_bytes(b"".join(to_pieces(state)))
    for name, value in vars(state).items():
        if name == "moments":
            assert all(np.array_equal(value[key], again.moments[key]) for key in value)
        elif isinstance(value, np.ndarray):
            assert np.array_equal(value, getattr(again, name))
            assert value.dtype == getattr(again, name).dtype
        else:
            assert value == getattr(again, name)


@given(st.binary(max_size=200))
def test_rubbish_is_no_state(data: bytes) -> None:
    with pytest.raises(StoreError, match="state of the last round"):
        from_bytes(data)


def test_a_site_that_sends_rubbish_metrics_only_drops_out_of_the_average() -> None:
    good = {"n": 10, "accuracy": 0.8, "loss": 0.5}
    for bad in ({}, {"n": 0, "accuracy": 1.0}, {"n": 5, "accuracy": 7.0}, {"n": "x", "accuracy": 0.1}, {"n": 5, "accuracy": True},
                {"n": -5, "accuracy": 0.5}, {"n": float("inf"), "accuracy": 0.5}, {"n": 5, "accuracy": None}):  # fmt: skip
        found = summarise({"a": good, "b": bad})
        assert found.accuracy == 0.8, bad
        assert found.worst == ("a", 0.8)
    assert summarise({}).accuracy is None


def test_summary_weighs_rows_and_shows_the_spread() -> None:
    found = summarise({"a": {"n": 30, "accuracy": 0.9, "loss": 1.0}, "b": {"n": 10, "accuracy": 0.5, "loss": 2.0}})
    assert found.accuracy == pytest.approx(0.8)
    assert found.mean == pytest.approx(0.7)
    assert found.variance == pytest.approx(0.04)
    assert found.loss == pytest.approx(1.25)


@given(st.integers(2, 20), st.integers(0, 10**6))
def test_mean_cosine_is_the_mean_over_pairs(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    updates = {f"{i:02}": rng.standard_normal(7).astype(np.float32) for i in range(n)}
    found = cosines(updates, norms(updates))
    units = [v / np.linalg.norm(v) for v in updates.values()]
    pairs = [float(units[i] @ units[j]) for i in range(n) for j in range(i + 1, n)]
    assert found["mean"] == pytest.approx(np.mean(pairs), abs=1e-5)
    assert len(found["pairs"]) == (len(pairs) if n <= 12 else 0)  # type: ignore[arg-type]


def test_cosine_of_nothing() -> None:
    assert cosines({"a": np.zeros(3, np.float32)}, {"a": 0.0}) == {"mean": None, "pairs": {}}


def test_entropy_is_fresh_or_follows_the_seed_and_says_which() -> None:
    private, known = Entropy(), Entropy(SharedSeed.of(1))
    assert not private.reproducible
    assert known.reproducible
    assert private.stream("a").token(16) != private.stream("a").token(16)
    assert known.stream("a", 1).token(16) == Entropy(SharedSeed.of(1)).stream("a", 1).token(16)
    assert known.stream("a", 1).token(16) != known.stream("a", 2).token(16)
    assert known.stream("a").reproducible


def test_the_accountant_shown_is_the_one_behind_the_epsilon() -> None:
    plan = prepare(heart(reproducible=False), Path.cwd()).run_plan
    names = sorted(plan.charges)
    charges = {
        name: replace(charge, epsilon={**charge.epsilon, plan.against: 2.0 if name == names[-1] else 1.0},
                      accountant=f"of {name}")
        for name, charge in plan.charges.items()
    }  # fmt: skip
    assert binding_accountant(replace(plan, charges=charges)) == f"of {names[-1]}"


@pytest.mark.parametrize(
    ("only", "named", "hint"),
    [
        ('["Nowhere"]', ["'Nowhere'"], "Sites there: Cleveland, Hungary"),
        ('["Cleveland", "hungry", "Nowhere"]', ["'hungry'", "'Nowhere'"], "Did you mean 'Hungary'"),
    ],
)
def test_sites_that_the_data_do_not_have_are_named(only: str, named: list[str], hint: str) -> None:
    plan = from_text(f'[data]\nsource = "heart"\n[sites]\nonly = {only}\n')
    with pytest.raises(PlanError, match="sites that the data have") as caught:
        site_rows(plan, Path())
    assert [problem.got for problem in caught.value.problems] == named
    assert hint in str(caught.value)
