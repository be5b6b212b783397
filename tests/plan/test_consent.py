"""A site's consent: each clause refuses what only it refuses, and neither looser plans nor stricter policies get further."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.offers import OPEN, checked, heart, verdict

from consilia.core.spec import Adjacency
from consilia.dp.ledger import Relation
from consilia.plan import consent
from consilia.plan.clauses import Spent
from consilia.plan.consent import first_look, ledger_limit
from consilia.plan.policy import Policy
from consilia.plan.run_plan import ADVERSARIES, RunPlan

MINE = Relation(Adjacency.ADD_REMOVE, "server+colluding-sites")
NONE_OWN = ("secure_sum.mode=none", "secure_sum.dropouts=0", "secure_sum.colluders=0", "privacy.noise=site")
UNBOUNDED = "max_epsilon_run = inf\nmax_epsilon_set = inf\n"

# key: (policy, what of the plan is changed, what the ledger holds, what the refusal shows)
ONLY: dict[str, tuple[str, Sequence[str], Spent, str]] = {
    "sites.least": ("[sites]\nleast = 5", (), {}, "5; the plan asks 4"),
    "sites.least_answers": ("[sites]\nleast_answers = 4", (), {}, "4; the plan asks sums of 3"),
    "data.sets": ('[data]\nsets = ["diabetes"]', (), {}, "diabetes; the plan asks cardiology"),
    "data.features": ('[data]\nfeatures = ["age"]', (), {}, "age; the plan asks pressure"),
    "data.labels": ('[data]\nlabels = ["death"]', (), {}, "death; the plan asks disease"),
    "model.names": ("", ("model.name=clinic.nets:small",), {}, "those of Consilia; the plan asks clinic.nets:small"),
    "training.max_rounds": ("[training]\nmax_rounds = 19", (), {}, "19; the plan asks 20"),
    "privacy.unit": ('[privacy]\nunit = "patient"', (), {}, "patient; the plan asks record"),
    "privacy.against": ("", ("privacy.against=world",), {}, "server; the plan asks world"),
    "privacy.max_epsilon_run": ("", ("privacy.epsilon=3",), {}, "1; the plan asks epsilon 2.9"),
    "privacy.max_epsilon_set": ("", (), {MINE: (2.5, 1e-6)}, "3; the plan asks epsilon 0.9"),
    "privacy.max_epsilon_sets": (
        "[privacy]\nmax_epsilon_sets = { cardiology = 0.5 }",
        (),
        {},
        "0.5; the plan asks epsilon 0.9",
    ),
    "privacy.max_delta": ("[privacy]\nmax_delta = 1e-7", (), {}, "1e-07; the plan asks 1e-06"),
    "privacy.noise": ('[privacy]\nnoise = "site"', (), {}, "site; the plan asks distributed"),
    "privacy.reproducible": (f"[privacy]\n{UNBOUNDED}", ("run.reproducible=true",), {}, "false; the plan asks true"),
    "secure_sum.modes": ('[secure_sum]\nmodes = ["none", "rlwe"]', (), {}, "none, rlwe; the plan asks masks"),
    "secure_sum.passive": ("", ("secure_sum.adversary=passive",), {}, "false; the plan asks true"),
    "evaluation.metrics": ("", ("evaluation.metrics=public",), {}, "charged; the plan asks public"),
}


@pytest.mark.parametrize("key", ONLY)
def test_what_one_clause_refuses_is_told_with_its_key_its_value_and_what_was_asked(key: str) -> None:
    policy, changes, spent, words = ONLY[key]
    found = verdict(OPEN + policy, checked(*changes), spent)
    assert found.answer == "refused"
    (told,) = found.clauses
    assert told.startswith(f"policy key {key}: ")
    assert words in told


@pytest.mark.parametrize(("table", "place"), [*(("EARLY", k) for k in range(12)), *(("LATE", k) for k in range(5))])
def test_without_a_clause_what_only_it_refuses_is_accepted(
    monkeypatch: pytest.MonkeyPatch, table: str, place: int
) -> None:
    clauses = getattr(consent, table)
    monkeypatch.setattr(consent, table, clauses[:place] + clauses[place + 1 :])
    accepted = [key for key, (policy, changes, spent, _) in ONLY.items()
                if verdict(OPEN + policy, checked(*changes), spent).answer == "accepted"]  # fmt: skip
    assert accepted
    assert {key.rstrip("s") for key in accepted} == {accepted[0].rstrip("s")}


def test_the_first_look_tells_what_the_plan_alone_decides() -> None:
    plan = checked("model.name=clinic.nets:small", "privacy.epsilon=3")
    assert first_look(Policy(), plan.plan) == (
        "policy key model.names: those of Consilia; the plan asks clinic.nets:small",
    )
    assert first_look(Policy(), checked().plan) == ()
    for key, (policy, changes, spent, _) in ONLY.items():
        early = first_look(Policy.from_text(OPEN + policy), checked(*changes).plan)
        assert set(early) <= set(verdict(OPEN + policy, checked(*changes), spent).clauses), key


def test_the_plan_itself_is_within_the_strict_policy() -> None:
    assert verdict(OPEN, checked()).answer == "accepted"
    assert all(clause.holds for clause in verdict(OPEN, checked()).weighed)


def test_all_broken_clauses_are_told_at_once() -> None:
    plan = checked("privacy.epsilon=3", "evaluation.metrics=public", "privacy.delta=1e-5")
    found = verdict('[sites]\nleast = 9\n[privacy]\nmax_delta = 1e-7\nunit = "site"', plan)
    keys = [told.split(":")[0].removeprefix("policy key ") for told in found.clauses]
    assert keys == ["privacy.unit", "privacy.max_delta", "evaluation.metrics", "sites.least", "privacy.max_epsilon_run"]


def test_a_steward_approves_one_digest_and_no_other() -> None:
    plan = checked()
    assert verdict("", plan).answer == "waiting"
    assert "no steward gave it" in verdict("", plan).clauses[0]
    assert verdict("", plan, approved=frozenset({plan.digest})).answer == "accepted"
    changed = checked("run.seed=1")
    assert verdict("", changed, approved=frozenset({plan.digest})).answer == "waiting"
    listed = f'[approval]\nmode = "unless-listed"\ndigests = ["{plan.digest}"]'
    assert verdict(listed, plan).answer == "accepted"
    assert verdict(listed, changed).answer == "waiting"
    assert verdict(listed.replace("unless-listed", "always"), plan).answer == "waiting"


def test_an_approval_opens_no_clause() -> None:
    plan = checked("privacy.epsilon=3")
    found = verdict("", plan, approved=frozenset({plan.digest}))
    assert found.answer == "refused"
    assert found.clauses == ("policy key privacy.max_epsilon_run: 1; the plan asks epsilon 2.99989",)


def test_bounds_of_another_kind_are_not_added_up() -> None:
    other = Relation(Adjacency.REPLACE_ONE, "server")
    assert "replace-one against server" in verdict(OPEN, checked(), {other: (0.1, 0.0)}).clauses[0]
    assert verdict(OPEN + f"[privacy]\n{UNBOUNDED}", checked(), {other: (0.1, 0.0)}).answer == "accepted"
    assert verdict(OPEN, checked(), {MINE: (math.inf, 0.0)}).answer == "refused"


def test_sums_are_those_of_decimals() -> None:
    plan = checked()
    charge = replace(plan.charges["A"], epsilon=dict.fromkeys(ADVERSARIES, 0.2))
    plan = replace(plan, charges={**plan.charges, "A": charge})
    assert 0.1 + 0.2 > 0.3
    assert verdict(f"{OPEN}[privacy]\nmax_epsilon_set = 0.3", plan, {MINE: (0.1, 0.0)}).answer == "accepted"
    assert verdict(f"{OPEN}[privacy]\nmax_epsilon_set = 0.2999", plan, {MINE: (0.1, 0.0)}).answer == "refused"


def test_public_rows_may_be_used_by_runs_that_anyone_can_recompute() -> None:
    plan = checked("run.reproducible=true")
    assert verdict(OPEN + f'[data]\npublic = ["cardiology"]\n[privacy]\n{UNBOUNDED}', plan).answer == "accepted"
    assert verdict(OPEN + f"[privacy]\nreproducible = true\n{UNBOUNDED}", plan).answer == "accepted"
    # They still cost more than any budget: a limit is no limit if noise that anyone can subtract counts under it.
    assert verdict(OPEN + '[data]\npublic = ["cardiology"]', plan).answer == "refused"


def test_a_built_in_table_is_public_under_its_own_name_only() -> None:
    policy = f"{OPEN}[privacy]\n{UNBOUNDED}"
    assert verdict(policy, heart("heart")).answer == "accepted"
    assert verdict(policy, heart("cardiology")).clauses == (
        "policy key privacy.reproducible: false; the plan asks true",
    )


def test_a_sum_that_carries_the_noise_must_be_named_although_single_answers_would_do() -> None:
    own = 'modes = ["none"]'
    assert verdict(OPEN + f"[secure_sum]\n{own}", checked("privacy.noise=site")).answer == "accepted"
    assert verdict(OPEN + f"[secure_sum]\n{own}", checked()).answer == "refused"
    passive = ("secure_sum.adversary=passive",)
    assert verdict(OPEN, checked(*passive, "privacy.noise=site")).answer == "accepted"
    assert verdict(OPEN + "[secure_sum]\npassive = true", checked(*passive)).answer == "accepted"


def test_the_ledger_is_given_the_policys_limit() -> None:
    assert ledger_limit(Policy(), "cardiology") == 3.0
    assert ledger_limit(Policy.from_text("[privacy]\nmax_epsilon_sets = { cardiology = inf }"), "cardiology") is None


# Each row from the tightest to the loosest; a plan is a choice from every row.
_PLANS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("privacy.epsilon=0.5",), ("privacy.epsilon=1",), ("privacy.epsilon=2",)),
    (("privacy.delta=1e-7",), ("privacy.delta=1e-5",)),
    (("training.rounds=10",), ("training.rounds=30",)),
    (("evaluation.metrics=hidden",), ("evaluation.metrics=public",)),
    (("secure_sum.adversary=active",), ("secure_sum.adversary=passive",)),
    (("run.reproducible=false",), ("run.reproducible=true",)),
    (
        ("privacy.noise=site",),
        ("privacy.noise=distributed",),
        ("privacy.noise=server", "secure_sum.mode=none", "secure_sum.dropouts=0", "secure_sum.colluders=0"),
    ),
)
_POLICIES: tuple[tuple[str, ...], ...] = (
    ("approval.mode=always", "approval.mode=never"),
    ("sites.least=9", "sites.least=3"),
    ("sites.least_answers=4", "sites.least_answers=2", "sites.least_answers=1"),
    ("training.max_rounds=20", "training.max_rounds=100"),
    ("privacy.unit=record", "privacy.unit=none"),
    ("privacy.against=server", "privacy.against=world"),
    ("privacy.max_epsilon_run=0.6", "privacy.max_epsilon_run=1", "privacy.max_epsilon_run=inf"),
    ("privacy.max_epsilon_set=0.6", "privacy.max_epsilon_set=2", "privacy.max_epsilon_set=inf"),
    ("privacy.max_delta=1e-7", "privacy.max_delta=1e-4"),
    ("privacy.noise=site", "privacy.noise=distributed", "privacy.noise=server"),
    ("privacy.reproducible=false", "privacy.reproducible=true"),
    ("secure_sum.modes=none", "secure_sum.modes=none,masks"),
    ("secure_sum.passive=false", "secure_sum.passive=true"),
    ("evaluation.metrics=hidden", "evaluation.metrics=public"),
)
_ORDER = {"refused": 0, "waiting": 1, "accepted": 2}


def _plan(choice: Sequence[int]) -> RunPlan:
    changes = [key for row, place in zip(_PLANS, choice, strict=True) for key in row[place]]
    if choice[-1] == 2:  # no sum, so nobody to be active or passive in it
        changes = [key for key in changes if not key.startswith("secure_sum.adversary")]
    return checked(*changes)


def _policy(choice: Sequence[int]) -> str:
    lines: dict[str, list[str]] = {}
    for row, place in zip(_POLICIES, choice, strict=True):
        path, value = row[place].split("=")
        section, key = path.split(".")
        if key == "modes":
            shown = "[" + ", ".join(f'"{mode}"' for mode in value.split(",")) + "]"
        else:
            shown = value if value[0].isdigit() or value in ("inf", "true", "false") else f'"{value}"'
        lines.setdefault(section, []).append(f"{key} = {shown}")
    return "\n".join(f"[{section}]\n" + "\n".join(keys) for section, keys in lines.items())


def _pairs(rows: Sequence[Sequence[object]]) -> st.SearchStrategy[tuple[tuple[int, int], ...]]:
    """Draw for each row a tighter and a looser place."""
    return st.tuples(*(
        st.tuples(st.integers(0, len(row) - 1), st.integers(0, len(row) - 1)).map(lambda two: (min(two), max(two)))
        for row in rows
    ))  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(_pairs(_PLANS), _pairs(_POLICIES), st.sampled_from([{}, {MINE: (1.2, 1e-7)}]))
def test_neither_a_looser_plan_nor_a_stricter_policy_gets_further(
    plans: tuple[tuple[int, int], ...], policies: tuple[tuple[int, int], ...], spent: Spent
) -> None:
    tight, loose = _plan([low for low, _ in plans]), _plan([high for _, high in plans])
    strict, lenient = _policy([low for low, _ in policies]), _policy([high for _, high in policies])

    def rank(policy: str, plan: RunPlan) -> int:
        return _ORDER[verdict(policy, plan, spent).answer]

    for policy in (strict, lenient):
        assert rank(policy, loose) <= rank(policy, tight)
    for plan in (tight, loose):
        assert rank(strict, plan) <= rank(lenient, plan)
