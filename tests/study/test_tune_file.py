"""The tune file: what it may say, and every fault in the house's one sentence."""

from pathlib import Path

import pytest
from tests.study.conftest import tuned

from consilia.core.errors import PlanError
from consilia.dp.selection_trials import Fixed, NegativeBinomial, Poisson
from consilia.study.tune_file import canonical, from_json, keys, load


def _faults(**changes: object) -> str:
    with pytest.raises(PlanError) as caught:
        tuned(**changes)
    return str(caught.value)


def test_laws() -> None:
    assert tuned().law == NegativeBinomial.of_mean(1.0, 4.0)
    assert tuned(distribution="logarithmic").law == NegativeBinomial.of_mean(0.0, 4.0)
    assert tuned(distribution="negative-binomial", eta=0.5).law == NegativeBinomial.of_mean(0.5, 4.0)
    assert tuned(distribution="poisson").law == Poisson(4.0)
    assert tuned(distribution="fixed").law == Fixed(4)


def test_keys_quoted_or_nested_are_the_same(tmp_path: Path) -> None:
    quoted, nested = tmp_path / "a.toml", tmp_path / "b.toml"
    quoted.write_text(
        'trials = 3\n[search]\n"training.learning_rate" = [0.1]\n"privacy.clip_norm" = { low = 1, high = 2 }\n'
    )
    nested.write_text("trials = 3\n[search.training]\nlearning_rate = [0.1]\n[search]\nprivacy.clip_norm.low = 1\n"
                      "privacy.clip_norm.high = 2\n")  # fmt: skip
    expected = {"training.learning_rate": [0.1], "privacy.clip_norm": {"low": 1, "high": 2}}
    assert keys(load(quoted)) == keys(load(nested)) == expected


def test_what_it_says_is_read_back() -> None:
    tune = tuned(epsilon=3.0, public={"data": {"source": "adult"}})
    assert from_json(canonical(tune)) == tune  # type: ignore[arg-type]


def test_a_stand_ins_files_lie_beside_the_tune_file(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        'trials = 3\n[search]\ntraining.learning_rate = [0.1]\n[public.data]\nsource = "csv"\npath = "rows.csv"\n'
    )
    found = load(tmp_path / "t.toml").public
    assert found is not None
    assert found.data["path"] == str(tmp_path / "rows.csv")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": None}, "tune key trials needs a value; got nothing. It means: how many trials"),
        ({"trials": 0}, "tune key trials needs"),
        ({"trials": "many"}, 'tune key trials needs a valid number; got "many"'),
        ({"trials": 1}, "tune key trials needs a mean above 1 for a random number"),
        ({"trials": 2.5, "distribution": "fixed"}, "a whole number"),
        ({"distribution": "uniform"}, "tune key distribution needs"),
        ({"distribution": "negative-binomial"}, "tune key eta needs a value"),
        ({"eta": 0.5}, "tune key eta needs"),
        ({"epsilon": -1}, "tune key epsilon needs"),
        ({"search": None}, "tune key search needs a value"),
        ({"search": {}}, "1 to 32 plan keys; got 0"),
        ({"score": "auc"}, "tune key score needs"),
        ({"epsilom": 1}, "tune key epsilom needs to be one that tune files have; got an unknown key. Did you mean epsilon?"),
        ({"public": {"data": 3}}, "tune key public.data needs"),
    ],
)  # fmt: skip
def test_faults_are_named_by_key(changes: dict[str, object], message: str) -> None:
    assert message in _faults(**changes)


def test_all_faults_at_once() -> None:
    assert len(_faults(trials=0, score="auc", epsilon=-1).splitlines()) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "tune file"),
        (b"trials = ", "needs TOML"),
        (b"\0\1", "needs text; got binary content"),
        (b"a = 1\n\xff", "UTF-8"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=message):
        load(path)


def test_a_missing_file_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"tune file .* needs to exist"):
        load(tmp_path / "nowhere.toml")
    with pytest.raises(PlanError, match="got a directory"):
        load(tmp_path)
