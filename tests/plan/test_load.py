import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from consilia.core.errors import PlanError, Problem
from consilia.plan.faults import sections
from consilia.plan.load import MAX_BYTES, canonical, from_json, from_text, json_schema, load
from consilia.plan.rules import broken
from consilia.plan.schema import Plan, section_models


def faults(text: str, *overrides: str) -> list[Problem]:
    with pytest.raises(PlanError) as caught:
        from_text(text, overrides)
    return list(caught.value.problems)


def file_fault(path: Path) -> str:
    with pytest.raises(PlanError) as caught:
        load(path)
    (problem,) = caught.value.problems
    assert problem.hint
    return str(problem)


HEART = '[data]\nsource = "heart"\n'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b" \n\t\n", "an empty file"),
        (b"\x89PNG\r\n\0\0\0", "binary content"),
        ('[run]\nname = "é"\n'.encode("latin-1"), "another encoding on line 2"),
        (b'[data]\nsource = "heart\n', "line 2"),
        (b"[data]\nsource = heart\n", "line 2"),
        (b"[data]\ntest_fraction = .5\n", "0.3  (not .3)"),
        (b'[data]\nsource = "heart"\nsource = "adult"\n', "line 3"),
        (b"x = " + b"[" * 100_000, "maximum recursion depth"),
        (HEART.encode() + b"x = " + b"[" * 250 + b"]" * 250, "recursion limit"),
        (b"x = " + b"9" * 10_000, "digits"),
        (b"#" * (MAX_BYTES + 1), "at most 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_plan_gives_one_clear_message(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(content)
    message = file_fault(path)
    assert words in message
    assert message.startswith("plan")
    assert message.count("\n") == 0


def test_a_missing_file_and_a_directory_are_told_apart(tmp_path: Path) -> None:
    assert "no such file" in file_fault(tmp_path / "none.toml")
    assert "a directory" in file_fault(tmp_path)
    assert "consilia init" in file_fault(tmp_path / "none.toml")


def test_a_path_through_a_file_or_with_a_nul_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert "Not a directory" in file_fault(tmp_path / "a" / "plan.toml")
    assert "null byte" in file_fault(tmp_path / "a\0b")


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b"\xef\xbb\xbf" + HEART.encode())
    assert load(path).data.source == "heart"


@pytest.mark.parametrize(
    ("line", "key", "needs", "hint"),
    [
        ("training.rounds = 'many'", "training.rounds", "a whole number", "number of rounds"),
        ("training.rounds = '20'", "training.rounds", "a whole number", ""),
        ("training.rounds = true", "training.rounds", "a whole number", ""),
        ("training.rounds = 20.0", "training.rounds", "a whole number", ""),
        ("training.rounds = 0", "training.rounds", "a number of at least 1", ""),
        ("run.reproducible = 1", "run.reproducible", "true or false", ""),
        ("run.name = ''", "run.name", "a name that begins with a letter", ""),
        ("run.name = '../x'", "run.name", "a name that begins with a letter", ""),
        ("run.seed = -1", "run.seed", "a number of at least 0", ""),
        ("run.nmae = 'x'", "run.nmae", "to be one that plans have", "Did you mean run.name?"),
        ("training.epsilon = 1", "training.epsilon", "to be one that plans have", "Did you mean privacy.epsilon?"),
        ("training.qqqqqq = 1", "training.qqqqqq", "to be one that plans have", "Known keys there: algorithm"),
        ("trainig.rounds = 1", "trainig", "to be one that plans have", "Did you mean [training]?"),
        ("rounds = 5", "rounds", "to be one that plans have", "Did you mean training.rounds?"),
        ("training.algorithm = 'fedavgg'", "training.algorithm", '"fedavg", "fedsgd"', 'Did you mean "fedavg"?'),
        ("training.algorithm = 3", "training.algorithm", '"fedavg", "fedsgd"', "fedavg: sites train"),
        ("privacy = 3", "privacy", "a section of key = value lines", "Write it below [privacy]"),
        ("privacy.delta = 1.0", "privacy.delta", "a number below 1", ""),
        ("privacy.epsilon = -1", "privacy.epsilon", "a number of at least 1e-06", ""),
        ("privacy.epsilon = nan", "privacy.epsilon", "a finite number", ""),
        ("privacy.epsilon = inf", "privacy.epsilon", "a finite number", ""),
        ("privacy.clip_norm = '1'", "privacy.clip_norm", "a number", ""),
        ("sites.only = 'Hungary'", "sites.only", "a list [..]", ""),
        ("sites.only = ['Hungary', 3]", "sites.only.1", "a text in quotes", ""),
        ("sites.counts = 3", "sites.counts", 'the word "public" or a table', ""),
        ("sites.counts = 'secret'", "sites.counts", 'the word "public" or a table', ""),
        ("sites.counts = {A = 0}", "sites.counts.A", "a number of at least 1", ""),
        ("data.numeric = {age = [1]}", "data.numeric.age", "a list [low, high]", ""),
        ("data.numeric = {age = [1, 2, 3]}", "data.numeric.age", "a list [low, high]", ""),
        ("run.name = 1979-05-27", "run.name", "", ""),
    ],
)
def test_a_faulty_key_gives_one_message_that_says_what_to_do(line: str, key: str, needs: str, hint: str) -> None:
    text = f'{line}\ndata.source = "heart"\n'
    if line.startswith("data."):
        text = line + '\ndata.source = "csv"\n'
    if key == "run.name" and not needs:  # a date is taken as its text
        assert from_text(text).run.name == "1979-05-27"
        return
    found = [problem for problem in faults(text) if problem.who.split()[-1] == key]
    assert len(found) == 1
    assert needs in found[0].needs
    assert hint in found[0].hint
    assert found[0].hint


def test_a_plan_without_data_says_what_to_add() -> None:
    (problem,) = faults("[run]\nname = 'x'\n")
    assert str(problem) == 'plan needs a section [data]; got none. Add [data] and below it source = "heart".'
    (problem,) = faults("[data]\nlabel = 'x'\n")
    assert problem.who == "plan key data.source"


def test_every_fault_comes_at_once_and_none_follows_from_another() -> None:
    text = """
[data]
source = "heart"
test_fraction = 2.0
[training]
rounds = "many"
batch = "fixed"
batch_size = 0
rouns = 3
[privacy]
unit = "recrod"
epsilon = 1.0
noise = "distributed"
[aggregation]
selection = "count"
quorum = 1.5
[evaluation]
metrics = "charged"
"""
    who = [problem.who for problem in faults(text, "privacy.delta=2", "nonsense")]
    assert sorted(who) == sorted(
        [
            "override nonsense",
            "plan key data.test_fraction",
            "plan key training.rounds",
            "plan key training.batch_size",
            "plan key training.rouns",
            "plan key privacy.unit",
            "plan key privacy.delta",
            # Rules on what validates; none that speaks of the unit, which is unknown.
            "plan key aggregation.count",
            "plan key aggregation.quorum",
            "plan key evaluation.noise_multiplier",
        ]
    )


def float_keys() -> list[str]:
    return [
        f"{section}.{key}"
        for section, model in section_models().items()
        if section != "phases"
        for key, info in model.model_fields.items()
        if info.annotation is float or float in get_args(info.annotation)
        or any(float in get_args(part) for part in get_args(info.annotation))
    ]  # fmt: skip


def test_the_float_keys_are_found() -> None:
    assert {"privacy.epsilon", "training.momentum", "aggregation.quorum", "aggregation.fraction"} <= set(float_keys())


@pytest.mark.parametrize("key", float_keys())
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1e-9"])
def test_no_number_is_nan_infinite_or_negative(key: str, value: str) -> None:
    found = faults(HEART, f"{key}={value}")
    assert key in [problem.who.split()[-1] for problem in found]


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("privacy.epsilon=3", lambda p: p.privacy.epsilon, 3.0),
        ("privacy.delta = 1e-6", lambda p: p.privacy.delta, 1e-6),
        ("training.momentum=.5", lambda p: p.training.momentum, 0.5),
        ("training.algorithm=fedsgd", lambda p: p.training.algorithm, "fedsgd"),
        ('run.name="my run"', lambda p: p.run.name, "my run"),
        ("run.name=my run", lambda p: p.run.name, "my run"),
        ("run.reproducible=true", lambda p: p.run.reproducible, True),
        ("sites.only=['a', 'b']", lambda p: p.sites.only, ["a", "b"]),
        ("sites.counts.A=5", lambda p: p.sites.counts, {"A": 5}),
        ("data.path=a=b.csv", lambda p: p.data.path, "a=b.csv"),
    ],
)
def test_overrides_are_toml_values_or_bare_words(override: str, read: Callable[[Plan], Any], value: object) -> None:
    if override.startswith("data.path"):  # an equals sign in a bare word could hide a typing error
        assert "a TOML value" in faults(HEART, override)[0].needs
        return
    assert read(from_text(HEART, [override])) == value


@pytest.mark.parametrize(
    "override", ["epsilon", "epsilon=3", "=3", "privacy.=3", ".epsilon=3", "privacy.epsilon=", "run.name='a"]
)
def test_a_faulty_override_is_named(override: str) -> None:
    found = faults(HEART, override)
    assert found[0].who == f"override {override}"
    assert found[0].hint


def test_an_override_beats_the_file_and_is_checked_like_it() -> None:
    text = HEART + "[privacy]\nepsilon = 1.0\n"
    assert from_text(text, ["privacy.epsilon=2", "privacy.epsilon=3"]).privacy.epsilon == 3
    assert faults(text, "privacy.epsilon=low")[0].got == '"low"'


def test_data_files_are_taken_relative_to_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "plan.toml"
    path.parent.mkdir()
    path.write_text('[data]\nsource = "idx"\npath = "../x.gz"\nlabels_path = "/y.gz"\n')
    data = load(path).data
    assert Path(data.path or "").resolve() == tmp_path / "x.gz"
    assert data.labels_path == "/y.gz"


def test_the_canonical_form_reads_back_as_the_same_plan(private: str) -> None:
    plan = from_text(private)
    again = from_json(json.loads(json.dumps(canonical(plan))))
    assert again == plan
    assert broken(again) == broken(plan) == []
    assert canonical(from_text(private, ["run.seed=0"])) == canonical(plan)
    with pytest.raises(PlanError):
        from_json({"data": {"source": "hart"}})


def test_every_key_says_what_it_means() -> None:
    unexplained = [f"{section}.{key}" for section, keys in sections().items() for key, text in keys.items() if not text]
    assert unexplained == []
    assert set(json_schema()["properties"]) == set(sections())


@pytest.mark.parametrize(
    "line",
    [
        "privacy.clip_norm = 1e-300", "privacy.clip_norm = 1e39", "privacy.control_clip_norm = 1e39",
        "privacy.noise_multiplier = 1e160", "privacy.noise_multiplier = 1e-160", "evaluation.noise_multiplier = 1e300",
        "privacy.epsilon = 1e300", "privacy.delta = 5e-324", "training.sampling_rate = 5e-324",
        "training.learning_rate = 1e300", "training.server_learning_rate = 1e300", "training.weight_decay = 1e300",
        "training.proximal_mu = 1e300", "training.server_tau = 1e300", "aggregation.fraction = 5e-324",
    ],
)  # fmt: skip
def test_numbers_that_arithmetic_cannot_carry_are_refused(line: str) -> None:
    found = [problem for problem in faults(f'{line}\ndata.source = "heart"\n') if problem.who.split()[-1] in line]
    assert [problem.needs.split(" of ")[0] for problem in found] == ["a number"]


def test_tables_nested_thousands_deep_are_one_problem() -> None:
    deep = ".".join(["a"] * 20_000)
    assert [problem.got for problem in faults(f"[{deep}]\n")] == ["tables nested thousands deep"]


def test_long_overrides_are_cut_where_they_are_shown() -> None:
    with pytest.raises(PlanError) as caught:
        from_text('data.source = "heart"\n', ["run.name=[" + "x" * 2_000_000, "y" * 2_000_000])
    assert len(str(caught.value)) < 1000
