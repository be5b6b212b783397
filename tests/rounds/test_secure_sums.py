"""Sums in secret: the same model as in the clear, and sites that are missing cost what they should, at every step."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.rounds.bench import FEDAVG, RECORD, Bench
from tests.rounds.secure_bench import SITES, attested, lose, secret, watch

from consilia.crypto.attestation.attester import Attester

BAD = "Hungary"
REST = [site for site in SITES if site != BAD]
BenchMaker = Callable[..., Bench]


@pytest.fixture(scope="module")
def tpm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Attester, str]]:
    folder = tmp_path_factory.mktemp("tpm")
    with attested(folder) as attester:
        yield attester, (folder / "policy.toml").read_text()


@pytest.fixture
def attester(request: pytest.FixtureRequest, tmp_path: Path) -> Attester | None:
    """The hardware of tests whose mode is attested, with its policy beside their plan; None for the others."""
    if request.node.callspec.params.get("mode") != "attested":
        return None
    found, policy = request.getfixturevalue("tpm")
    (tmp_path / "policy.toml").write_text(policy)
    return found  # type: ignore[no-any-return]


WAYS: dict[str, dict[str, Any]] = {
    "unprotected": {"privacy": 'unit = "none"'},
    "noise at the sites": {"privacy": RECORD},
    "local steps": {"privacy": 'unit = "none"', "training": FEDAVG},
}


@pytest.mark.parametrize(
    ("mode", "way"),
    [("masks", "unprotected"), ("masks", "noise at the sites"), ("masks", "local steps"), ("rlwe", "unprotected"),
     ("paillier", "noise at the sites"), ("attested", "unprotected"), ("attested", "noise at the sites")],
)  # fmt: skip
def test_the_model_is_that_of_the_run_in_the_clear(
    mode: str, way: str, bench: BenchMaker, attester: Attester | None
) -> None:
    rounds = 3
    clear = bench(secret("none", rounds=rounds, **WAYS[way]), run="clear")
    one = bench(secret(mode, rounds=rounds, **WAYS[way]), run="secret", attester=attester)
    clear.coordinator.train()
    one.coordinator.train()
    secure = one.prepared.run_plan.secure
    assert secure is not None
    steps = 0.0
    if secure.ring is not None:
        # Each site's rounding moves a coordinate by less than a step; the mean over all, so do all rounds' together.
        steps = 2 * rounds * 4 / secure.grids[0].scale
    assert np.abs(one.coordinator.state.model - clear.coordinator.state.model).max() <= steps
    for mine, plain in zip(one.journal.records(), clear.journal.records(), strict=True):
        assert mine["answered"] == plain["answered"] == list(SITES)
        assert mine["accuracy"] == pytest.approx(plain["accuracy"], abs=0.01)
        assert mine["loss"] == pytest.approx(plain["loss"], abs=1e-3)
        assert mine["train_loss"] == (pytest.approx(plain["train_loss"], abs=1e-3) if plain["train_loss"] else None)


@pytest.mark.parametrize("answered", [False, True], ids=["unheard", "answer lost"])
@pytest.mark.parametrize(
    ("step", "names"), [("begin", REST), ("adverts", REST), ("train", REST), ("survivors", SITES), ("votes", SITES)]
)
def test_masks_a_site_lost_at_any_stage_costs_itself_at_most(
    step: str, names: list[str], answered: bool, bench: BenchMaker
) -> None:
    one = bench(secret("masks", rounds=3))
    seen = watch(one)
    lose(one, (BAD,), step, 2, answered=answered)
    one.coordinator.train()
    records = one.journal.records()
    assert [record["status"] for record in records] == ["counted"] * 3
    assert [record["answered"] for record in records] == [list(SITES), list(names), list(SITES)]
    assert set(records[1]["dropped"]) == ({BAD} if BAD not in names else set())
    for number in (1, 2, 3):
        total = seen.out[number].total
        assert total is not None
        assert np.array_equal(total, seen.sum(number, records[number - 1]["answered"]))


@pytest.mark.parametrize(
    ("step", "sites", "reason"),
    [("begin", ("Hungary", "Cleveland"), "2 sites got through stage advert, 3 are needed"),
     ("adverts", ("Hungary", "Cleveland"), "2 sites got through stage shares, 3 are needed"),
     ("train", ("Hungary", "Cleveland"), "2 sites got through stage masked, 3 are needed"),
     ("survivors", ("Hungary", "Cleveland"), "2 sites got through stage vote, 3 are needed"),
     ("votes", ("Hungary", "Cleveland"), "the secret of"),
     ("begin", SITES, "0 sites"), ("train", SITES, "0 sites"), ("votes", SITES, "the secret of")],
)  # fmt: skip
def test_masks_with_more_lost_the_round_is_skipped_and_the_next_one_counts(
    step: str, sites: tuple[str, ...], reason: str, bench: BenchMaker
) -> None:
    one = bench(secret("masks", rounds=3))
    lose(one, sites, step, 2, answered=True)
    models = [one.coordinator.state.model.copy()]
    one.coordinator.train(lambda _: models.append(one.coordinator.state.model.copy()))
    records = one.journal.records()
    assert [record["status"] for record in records] == ["counted", "skipped", "counted"]
    assert reason in str(records[1]["reason"])
    assert records[1]["answered"] == []
    assert np.array_equal(models[1], models[2])
    assert not np.array_equal(models[2], models[3])
    assert [record["transcript"] is None for record in records] == [False, True, False]


def test_masks_without_tolerated_dropouts_one_lost_site_costs_the_round(bench: BenchMaker) -> None:
    one = bench(secret("masks", rounds=3, dropouts=0))
    lose(one, (BAD,), "train", 2, answered=True)
    one.coordinator.train()
    records = one.journal.records()
    assert [record["status"] for record in records] == ["counted", "skipped", "counted"]
    assert records[1]["dropped"] == {BAD: "no answer before the deadline"}


CEREMONY = [("rlwe", "commit"), ("rlwe", "part"), ("rlwe", "join")] + [
    ("paillier", step) for step in ("greet", "make", "take")
]


@pytest.mark.parametrize(("mode", "step"), CEREMONY)
def test_a_site_lost_in_the_ceremony_costs_that_round(mode: str, step: str, bench: BenchMaker) -> None:
    one = bench(secret(mode, rounds=2, metrics="hidden"))
    seen = watch(one)
    bad = "Cleveland" if step == "make" else BAD
    lose(one, (bad,), step, 0, answered=True)  # it thinks that it has taken the step
    one.coordinator.train()
    first, second = one.journal.records()
    assert first["status"] == "skipped"
    assert bad in str(first["reason"])
    assert second["status"] == "counted"
    assert np.array_equal(seen.out[2].total, seen.sum(2, list(SITES)))  # type: ignore[arg-type]


@pytest.mark.parametrize("answered", [False, True], ids=["unheard", "answer lost"])
@pytest.mark.parametrize("mode", ["rlwe", "paillier", "attested"])
def test_a_site_lost_in_a_round_is_not_in_the_sum(
    mode: str, answered: bool, bench: BenchMaker, attester: Attester | None
) -> None:
    one = bench(secret(mode, rounds=3, metrics="hidden"), attester=attester)
    seen = watch(one)
    lose(one, (BAD,), "train", 2, answered=answered)
    one.coordinator.train()
    records = one.journal.records()
    assert [record["answered"] for record in records] == [list(SITES), REST, list(SITES)]
    assert set(records[1]["dropped"]) == {BAD}
    for number in (1, 2, 3) if mode != "attested" else ():
        assert np.array_equal(seen.out[number].total, seen.sum(number, records[number - 1]["answered"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["rlwe", "paillier", "attested"])
def test_too_few_answers_are_never_opened(mode: str, bench: BenchMaker, attester: Attester | None) -> None:
    one = bench(secret(mode, rounds=3, metrics="hidden"), attester=attester)
    lose(one, ("Hungary", "Cleveland"), "train", 2, answered=True)
    opened = []
    one.transport.unheard = lambda _site, task: bool(opened.append((task.round, task.body.get("stage"))))  # type: ignore[func-returns-value]
    one.coordinator.train()
    records = one.journal.records()
    assert [record["status"] for record in records] == ["counted", "skipped", "counted"]
    assert records[1]["reason"] == "2 of 4 answers; quorum 3"
    assert (2, "open") not in opened
    assert mode == "attested" or {(1, "open"), (3, "open")} <= set(opened)


@pytest.mark.parametrize(("mode", "answered"), [("rlwe", False), ("rlwe", True), ("paillier", True)])
def test_a_site_lost_before_the_opening_costs_the_round(mode: str, answered: bool, bench: BenchMaker) -> None:
    one = bench(secret(mode, rounds=3, metrics="hidden"))
    lose(one, SITES, "open", 2, answered=answered)
    one.coordinator.train()
    records = one.journal.records()
    assert [record["status"] for record in records] == ["counted", "skipped", "counted"]
    assert "needs" in str(records[1]["reason"])


@pytest.mark.parametrize("answered", [False, True], ids=["unheard", "answer lost"])
@pytest.mark.parametrize("step", ["challenge", "evidence"])
@pytest.mark.parametrize("mode", ["attested"])
def test_a_site_lost_before_the_evidence_is_shown_it_in_the_next_round(
    mode: str, step: str, answered: bool, bench: BenchMaker, attester: Attester | None
) -> None:
    one = bench(secret(mode, rounds=2, metrics="hidden"), attester=attester)
    lose(one, (BAD,), step, 1, answered=answered)
    one.coordinator.train()
    first, second = one.journal.records()
    # Evidence that was verified stays so, whether or not the coordinator heard of it.
    assert first["answered"] == (list(SITES) if (step, answered) == ("evidence", True) else REST)
    assert second["answered"] == list(SITES)
