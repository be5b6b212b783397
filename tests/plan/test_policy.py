"""policy.toml: what it takes, what it refuses, and that silence is strict."""

from pathlib import Path

import pytest

from consilia.core.errors import PlanError
from consilia.plan.policy import POLICY, Policy, policy_models
from consilia.plan.policy_template import policy_template


def faults(text: str) -> list[str]:
    with pytest.raises(PlanError) as caught:
        Policy.from_text(text)
    return [str(problem) for problem in caught.value.problems]


def test_an_empty_file_is_a_strict_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("\n")
    policy = Policy.read(path)
    assert policy == Policy.from_text("# nothing\n")
    assert policy.approval.mode == "always"
    assert policy.sites.least == 3
    assert policy.model.names is None
    privacy = policy.privacy
    assert (privacy.unit, privacy.against, privacy.noise) == ("record", "server", "distributed")
    assert (privacy.max_epsilon_run, privacy.max_epsilon_set, privacy.max_delta) == (1.0, 3.0, 1e-5)
    assert not privacy.reproducible
    assert policy.secure_sum.modes == ["none", "masks", "rlwe"]
    assert not policy.secure_sum.passive
    assert policy.evaluation.metrics == "charged"


def test_without_a_file_nothing_is_agreed_to(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="takes part in nothing without one"):
        Policy.read(tmp_path / "policy.toml")
    with pytest.raises(PlanError, match="a directory"):
        Policy.read(tmp_path)


def test_unknown_keys_are_refused_with_what_was_meant_all_at_once() -> None:
    found = faults(
        "[privacy]\nmax_epsilon_rum = 3\nunit = 'recrd'\nmax_delta = 2\nmax_epsilon_sets = { a = -1 }\n"
        "[aproval]\nx = 1\n[sites]\nmode = 1\n[model]\nnames = 'mlp'\n[approval]\ndigests = ['ab']\n"
    )
    for words in (
        "Did you mean privacy.max_epsilon_run?", 'Did you mean "record"?', "policy key privacy.max_delta needs a number below 1",
        "privacy.max_epsilon_sets.a needs a number above 0", "Did you mean [approval]?", "Did you mean approval.mode?",
        "policy key model.names needs a list", "approval.digests.0 needs a digest: 64 digits",
    ):  # fmt: skip
        assert sum(words in problem for problem in found) == 1, words
    assert len(found) == 8


@pytest.mark.parametrize("text", ["x =", "[privacy]\nmax_epsilon_run = nan", "privacy = 3", "[privacy]\nunit = 3"])
def test_what_is_no_policy_is_refused_in_a_sentence(text: str) -> None:
    (problem,) = faults(text)
    assert problem.startswith("policy ")


def test_no_bound_is_written_as_infinity() -> None:
    policy = Policy.from_text("[privacy]\nmax_epsilon_run = inf\nmax_epsilon_sets = { open = inf }\n")
    assert policy.privacy.max_epsilon_run == policy.limit("open") == float("inf")
    assert policy.limit("other") == 3.0


def test_every_key_says_what_it_means() -> None:
    unexplained = [
        f"{part}.{key}" for part, keys in POLICY.sections().items() for key, text in keys.items() if not text
    ]
    assert unexplained == []
    assert all(kind.__doc__ for kind in policy_models().values())


def test_the_template_means_what_an_empty_file_means_and_shows_every_key() -> None:
    text = policy_template()
    assert Policy.from_text(text) == Policy()
    for section, keys in POLICY.sections().items():
        below = text.split(f"[{section}]")[1].split("\n[")[0]
        assert [key for key in keys if f"\n{key} = " not in below and f"\n# {key} = " not in below] == []
    examples = "\n".join(line.removeprefix("# ") if " = " in line else line for line in text.splitlines())
    set_all = Policy.from_text("\n".join(line for line in examples.splitlines() if not line.startswith("#")))
    assert set_all.data.sets == ["cardiology"]
