"""A site's ledger: what it admits, charges, seals and finds again."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consilia.core.canonical import canonical_bytes, digest_bytes
from consilia.core.errors import BudgetExceeded, PlanError, StoreError
from consilia.core.spec import Adjacency
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment, Relation
from consilia.dp.search import Search
from consilia.dp.selection_trials import NegativeBinomial
from consilia.store.kept import Sealed
from consilia.store.ledger_store import SiteStore

UPDATE = Event(1.0, 0.01, 10)
METRIC = Event(4.0)
RECORDS = Relation(Adjacency.ADD_REMOVE, "server")


def allotment(run: str = "r", *, epsilon: float = 1.0, times: int = 3, population: str = "p") -> Allotment:
    return Allotment(run, population, ((UPDATE, times), (METRIC, 1)), epsilon, 1e-5, Adjacency.ADD_REMOVE, "server")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SiteStore]:
    with SiteStore.open(path, "A") as store:
        yield store


def admitted(store: SiteStore, times: int = 3) -> SiteStore:
    store.allot(allotment(times=times), fingerprint="f1", limit=None)
    return store


def test_a_run_that_would_pass_the_limit_is_refused_and_leaves_no_trace(store: SiteStore) -> None:
    head = store.allot(allotment("r1", epsilon=0.7), fingerprint="f", limit=1.0)
    with pytest.raises(BudgetExceeded, match=r"at most 1 over all runs; got 0\.7 already allotted and 0\.4"):
        store.allot(allotment("r2", epsilon=0.4), fingerprint="f", limit=1.0)
    assert store.head("p") == head
    assert store.spent("p") == {RECORDS: (0.7, 1e-5)}
    with pytest.raises(StoreError, match="needs an allotment"):
        store.reserve("r2", 1, "update", UPDATE, reuse_open=False)


def test_one_changed_row_does_not_reset_a_budget(store: SiteStore) -> None:
    store.allot(allotment("r1", epsilon=0.7), fingerprint="before", limit=1.0)
    with pytest.raises(BudgetExceeded):
        store.allot(allotment("r2", epsilon=0.4), fingerprint="after", limit=1.0)


def test_a_limit_once_given_holds_for_plans_without_one_or_with_a_larger_one(path: Path, store: SiteStore) -> None:
    store.allot(allotment("r1", epsilon=0.7), fingerprint="f", limit=1.0)
    for limit in (None, 5.0):
        with SiteStore.open(path, "A") as again, pytest.raises(BudgetExceeded, match=r"at most 1 over all runs"):
            again.allot(allotment("r2", epsilon=0.4), fingerprint="f", limit=limit)
    store.allot(allotment("r3", epsilon=0.2), fingerprint="f", limit=0.9)  # lower is a plan's right, and stays
    with pytest.raises(BudgetExceeded, match=r"at most 0\.9 over all runs"):
        store.allot(allotment("r4", epsilon=0.1), fingerprint="f", limit=1.0)
    assert (store.limit("p"), store.limit("q")) == (0.9, None)


def test_only_the_steward_raises_a_limit(path: Path, store: SiteStore) -> None:
    store.allot(allotment("r1", epsilon=0.7), fingerprint="f", limit=1.0)
    head = store.set_limit("p", 2.0)
    with SiteStore.open(path, "A") as again:
        assert (again.limit("p"), again.verify("p", head)) == (2.0, head)
        again.allot(allotment("r2", epsilon=1.2), fingerprint="f", limit=None)
        with pytest.raises(BudgetExceeded, match=r"at most 2 over all runs"):
            again.allot(allotment("r3", epsilon=0.2), fingerprint="f", limit=None)
        again.set_limit("p", 0.1)  # below what is spent: nothing more is admitted, what was admitted goes on
        again.reserve("r1", 1, "update", UPDATE, reuse_open=False)
        again.allot(allotment("r2", epsilon=1.2), fingerprint="f", limit=None)
        with pytest.raises(BudgetExceeded):
            again.allot(allotment("r3", epsilon=0.01), fingerprint="f", limit=None)
    assert [str(entry.kind) for entry in store.entries("p")] == ["allot", "limit", "allot", "limit", "reserve"]


def test_the_steward_lifts_a_limit(store: SiteStore) -> None:
    store.set_limit("p", 0.5)
    store.set_limit("p", None)
    assert store.limit("p") is None
    store.allot(allotment(), fingerprint="f", limit=None)


def test_a_limit_can_stand_before_the_first_run(store: SiteStore) -> None:
    store.set_limit("p", 0.5)
    with pytest.raises(BudgetExceeded, match=r"at most 0\.5 over all runs"):
        store.allot(allotment(), fingerprint="f", limit=None)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan")])
def test_a_limit_without_meaning_is_refused(store: SiteStore, epsilon: float) -> None:
    with pytest.raises(PlanError, match="a finite number above 0"):
        store.set_limit("p", epsilon)
    assert store.entries("p") == []


def test_runs_bounded_for_another_relation_are_recorded_apart(store: SiteStore) -> None:
    world = replace(allotment("r2"), against="world")
    store.allot(allotment("r1"), fingerprint="f", limit=None)
    store.allot(world, fingerprint="f", limit=None)
    assert store.spent("p") == {RECORDS: (1.0, 1e-5), world.relation: (1.0, 1e-5)}
    with pytest.raises(BudgetExceeded, match="do not add up"):
        store.allot(allotment("r3", epsilon=0.1), fingerprint="f", limit=100.0)


def test_the_head_depends_on_no_release_that_is_noised_later(tmp_path: Path) -> None:
    # With noise at the server a release is not private: whoever has the head must not be able to test guesses of it.
    release, named = b"an update without noise", []
    for site in ("A", "B"):
        with SiteStore.open(tmp_path / site, site) as store:
            admitted(store)
            hold = store.reserve("r", 1, "update", UPDATE, reuse_open=False)
            store.commit(hold, release=release, model_digest="m", local_state=None)
            body = store.entries("p")[-1].body
            assert digest_bytes(release).encode() not in canonical_bytes(body)
            named.append(body["release"])
            assert store.sealed("r", 1) == Sealed(release, "m")
    assert named[0] != named[1]


def test_populations_have_budgets_of_their_own(store: SiteStore) -> None:
    store.allot(allotment("r1", epsilon=0.7), fingerprint="f", limit=1.0)
    store.allot(allotment("r2", epsilon=0.7, population="q"), fingerprint="f", limit=1.0)
    assert store.populations() == ["p", "q"]
    assert store.spent("p") == store.spent("q") == {RECORDS: (0.7, 1e-5)}
    assert store.spent("nobody") == {}


def test_a_resumed_run_is_admitted_once(path: Path, store: SiteStore) -> None:
    head = store.allot(allotment(), fingerprint="f", limit=1.0)
    with SiteStore.open(path, "A") as again:
        assert again.allot(allotment(), fingerprint="f", limit=1.0) == head
        assert again.spent("p") == {RECORDS: (1.0, 1e-5)}


def test_a_run_keeps_its_allotment_and_population(store: SiteStore) -> None:
    store.allot(allotment(), fingerprint="f", limit=None)
    with pytest.raises(BudgetExceeded, match="keep its allotment"):
        store.allot(allotment(epsilon=0.5), fingerprint="f", limit=None)
    with pytest.raises(StoreError, match="keep its population 'p'"):
        store.allot(allotment(population="q"), fingerprint="f", limit=None)


def test_a_charge_beyond_the_allotment_is_refused(store: SiteStore) -> None:
    admitted(store)
    for round in (1, 2, 3):
        store.reserve("r", round, "update", UPDATE, reuse_open=False)
    with pytest.raises(BudgetExceeded, match="charge 4 of 3"):
        store.reserve("r", 4, "update", UPDATE, reuse_open=False)
    with pytest.raises(BudgetExceeded, match="charge 1 of 0"):
        store.reserve("r", 4, "update", Event(0.5), reuse_open=False)
    assert store.charged("r") == [(UPDATE, 3)]
    store.reserve("r", 4, "evaluation", METRIC, reuse_open=False)
    assert store.charged("r") == [(UPDATE, 3), (METRIC, 1)]


def test_an_open_hold_counts_as_spent_after_a_restart(path: Path, store: SiteStore) -> None:
    admitted(store)
    store.reserve("r", 1, "update", UPDATE, reuse_open=False)
    with SiteStore.open(path, "A") as again:
        assert again.charged("r") == [(UPDATE, 1)]
        assert not again.reserve("r", 1, "update", UPDATE, reuse_open=False).reused
        assert again.charged("r") == [(UPDATE, 2)]


def test_the_reproducible_mode_takes_up_an_open_hold(path: Path, store: SiteStore) -> None:
    admitted(store)
    first = store.reserve("r", 1, "update", UPDATE, reuse_open=True)
    with SiteStore.open(path, "A") as again:
        second = again.reserve("r", 1, "update", UPDATE, reuse_open=True)
        assert (second.index, second.reused, again.charged("r")) == (first.index, True, [(UPDATE, 1)])
        # Another round, purpose or mechanism is another release.
        assert not again.reserve("r", 2, "update", UPDATE, reuse_open=True).reused
        assert not again.reserve("r", 1, "evaluation", METRIC, reuse_open=True).reused
        again.commit(second, release=b"x", model_digest="m", local_state=None)
        assert not again.reserve("r", 1, "update", UPDATE, reuse_open=True).reused


def test_a_sealed_release_is_found_again_byte_for_byte(path: Path, store: SiteStore) -> None:
    admitted(store)
    release = bytes(range(256)) * 1000
    hold = store.reserve("r", 1, "update", UPDATE, reuse_open=False)
    head = store.commit(hold, release=release, model_digest="m1", local_state=None)
    with SiteStore.open(path, "A") as again:
        assert again.sealed("r", 1) == Sealed(release, "m1")
        assert again.sealed("r", 2) is None
        assert again.sealed("r", 1, "evaluation") is None
        assert again.verify("p", head) == head


def test_only_the_newest_release_is_kept_and_every_entry(store: SiteStore) -> None:
    admitted(store)
    for round in (1, 2):
        hold = store.reserve("r", round, "update", UPDATE, reuse_open=False)
        store.commit(hold, release=b"%d" % round, model_digest="m", local_state=None)
    assert store.sealed("r", 1) is None
    assert store.sealed("r", 2) == Sealed(b"2", "m")
    assert [str(entry.kind) for entry in store.entries("p")] == ["allot", *["reserve", "commit"] * 2]


def test_a_hold_is_committed_once(store: SiteStore) -> None:
    admitted(store)
    hold = store.reserve("r", 1, "update", UPDATE, reuse_open=False)
    store.commit(hold, release=b"first", model_digest="m", local_state=None)
    with pytest.raises(StoreError, match="open hold"):
        store.commit(hold, release=b"second", model_digest="m", local_state=None)
    assert store.sealed("r", 1) == Sealed(b"first", "m")


def test_a_closed_run_charges_nothing_more_and_gets_nothing_back(store: SiteStore) -> None:
    admitted(store)
    hold = store.reserve("r", 1, "update", UPDATE, reuse_open=False)
    head = store.close_run("r", "stopped")
    assert store.close_run("r", "failed") == head
    for refused in (
        lambda: store.reserve("r", 2, "update", UPDATE, reuse_open=False),
        lambda: store.commit(hold, release=b"x", model_digest="m", local_state=None),
    ):
        with pytest.raises(StoreError, match="closed as 'stopped'"):
            refused()
    assert store.spent("p") == {RECORDS: (1.0, 1e-5)}
    with pytest.raises(BudgetExceeded):
        store.allot(allotment("r2", epsilon=0.1), fingerprint="f", limit=1.0)


def test_the_fingerprint_of_the_data_stands_in_every_charge(path: Path, store: SiteStore) -> None:
    admitted(store).reserve("r", 1, "update", UPDATE, reuse_open=False)
    with SiteStore.open(path, "A") as again:
        again.reserve("r", 2, "update", UPDATE, reuse_open=False)
        again.allot(allotment(), fingerprint="f2", limit=None)
        again.reserve("r", 3, "update", UPDATE, reuse_open=False)
        first, *same, other = [entry.body["fingerprint"] for entry in again.entries("p")]
        assert same == [first, first]
        assert other != first
        # Under the site's own key: the head of the chain must not let anyone test guesses of the rows.
        assert "f1" not in (first, other)


def test_a_run_without_a_charge_is_sealed_without_an_entry(path: Path, store: SiteStore) -> None:
    store.seal_free("r", 1, release=b"x", model_digest="m", local_state=b"s")
    with SiteStore.open(path, "A") as again:
        assert again.sealed("r", 1) == Sealed(b"x", "m")
        assert again.local_state("r", 1) == b"s"
    assert store.populations() == []
    assert store.charged("r") == []
    assert store.close_run("r", "done") is None


def test_a_run_with_an_allotment_cannot_seal_free(store: SiteStore) -> None:
    admitted(store)
    with pytest.raises(StoreError, match="needs a charge"):
        store.seal_free("r", 1, release=b"x", model_digest="m", local_state=None)


def test_local_state_of_the_last_two_rounds_is_kept(store: SiteStore) -> None:
    for round in (1, 2, 4):
        store.seal_free("r", round, release=b"", model_digest="m", local_state=b"%d" % round)
    assert [store.local_state("r", round) for round in (1, 2, 3, 4, 9)] == [None, b"2", b"2", b"4", b"4"]
    assert store.local_state("other", 9) is None


def test_rounds_that_do_not_count_never_push_out_the_state_that_does(store: SiteStore) -> None:
    store.seal_free("r", 1, release=b"", model_digest="m", local_state=b"1")
    for round in (2, 3, 4):  # all skipped
        store.seal_free("r", round, release=b"", model_digest="m", local_state=b"void", counted=1)
        assert store.local_state("r", 1) == b"1"
    store.seal_free("r", 5, release=b"", model_digest="m", local_state=b"5", counted=1)
    assert store.local_state("r", 4) == b"1"
    assert store.local_state("r", 5) == b"5"


def test_a_round_computed_again_replaces_its_state(store: SiteStore) -> None:
    store.seal_free("r", 1, release=b"", model_digest="m", local_state=b"1")
    for attempt in (b"a", b"b"):
        store.seal_free("r", 2, release=attempt, model_digest="m", local_state=attempt)
    assert (store.local_state("r", 2), store.local_state("r", 1)) == (b"b", b"1")
    assert store.sealed("r", 2) == Sealed(b"b", "m")


_RACE = """
import sys
from pathlib import Path
from consilia.core.errors import BudgetExceeded
from consilia.core.spec import Adjacency
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment
from consilia.store.ledger_store import SiteStore
path, run = Path(sys.argv[1]), sys.argv[2]
event = Event(1.0, 0.01, 10)
store = SiteStore.open(path, "A")
print("ready", flush=True)
sys.stdin.readline()
admitted = charges = 0
try:
    store.allot(Allotment(run, "p", ((event, 25),), 0.6, 1e-5, Adjacency.ADD_REMOVE, "server"), fingerprint="f", limit=1.3)
    admitted = 1
    for round in range(40):
        store.reserve(run, round, "update", event, reuse_open=False)
        charges += 1
except BudgetExceeded:
    pass
print(admitted, charges)
"""


def test_processes_that_race_share_one_budget_and_one_chain(path: Path) -> None:
    # Two runs fit; of the four processes, two share a run: 25 charges a run whoever takes them.
    names = ["r1", "r1", "r2", "r3"]
    workers = [
        subprocess.Popen([sys.executable, "-c", _RACE, str(path), name], stdin=-1, stdout=-1, text=True)
        for name in names
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    results = [[int(number) for number in worker.communicate(timeout=60)[0].split()] for worker in workers]
    by_run: dict[str, int] = {}
    for name, (admitted_here, charges) in zip(names, results, strict=True):
        if admitted_here:
            by_run[name] = by_run.get(name, 0) + charges
    assert len(by_run) == 2
    assert set(by_run.values()) == {25}
    with SiteStore.open(path, "A") as store:
        store.verify("p")
        assert store.spent("p")[RECORDS][0] == 1.2
        assert len(store.entries("p")) == 2 + 50


_steps = st.lists(
    st.tuples(st.sampled_from(["allot", "reserve", "commit", "reopen", "close"]), st.integers(0, 2), st.booleans()),
    max_size=14,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps)
def test_any_order_of_calls_charges_at_least_what_was_released(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("steps") / "a.sqlite"
    store = SiteStore.open(path, "A")
    limit, admitted_runs, charges, holds, releases = 2.0, set[str](), dict[str, int](), [], dict[str, bytes]()
    closed = set[str]()
    for number, (step, which, reuse) in enumerate(steps):
        run = f"r{which}"
        try:
            if step == "allot":
                store.allot(allotment(run, times=2), fingerprint="f", limit=limit)
                admitted_runs.add(run)
            elif step == "reserve":
                hold = store.reserve(run, 1, "update", UPDATE, reuse_open=reuse)
                assert run in admitted_runs - closed
                charges[run] = charges.get(run, 0) + (not hold.reused)
                holds.append(hold)
            elif step == "commit" and holds:
                hold = holds.pop()
                store.commit(hold, release=b"%d" % number, model_digest="m", local_state=None)
                releases[hold.run] = b"%d" % number
            elif step == "close":
                store.close_run(run, "done")
                closed |= {run} & admitted_runs
            elif step == "reopen":
                store.close()
                store = SiteStore.open(path, "A")
        except (BudgetExceeded, StoreError):
            pass
        assert store.spent("p").get(RECORDS, (0.0, 0.0))[0] == len(admitted_runs) <= limit
        for name in admitted_runs:
            assert sum(count for _, count in store.charged(name)) == charges.get(name, 0) <= 2
            if name in closed and name in releases:
                with pytest.raises(StoreError, match="closed as 'done'"):
                    store.sealed(name, 1)
                continue
            found = store.sealed(name, 1)
            assert (found and found.release) == releases.get(name)
        store.verify("p")
    store.close()


def _search(trials: int = 2) -> tuple[Allotment, list[Allotment]]:
    events = ((UPDATE, 2),)
    search = replace(allotment("tune"), events=(), search=Search(NegativeBinomial.of_mean(1.0, 5.0), trials, (events,)))
    return search, [
        replace(search, run=f"tune-{number}", events=events, search=None, within="tune")
        for number in range(1, trials + 2)
    ]


def test_a_search_is_charged_once_before_its_first_trial(path: Path, store: SiteStore) -> None:
    search, trials = _search()
    with pytest.raises(StoreError, match="an allotment for run 'tune'"):
        store.allot(trials[0], fingerprint="f", limit=1.0)
    store.allot(search, fingerprint="f", limit=1.0)
    assert store.spent("p") == {RECORDS: (1.0, 1e-5)}
    with pytest.raises(BudgetExceeded, match="charge 1 of 0"):
        store.reserve("tune", 1, "update", UPDATE, reuse_open=False)
    for trial in trials[:2]:
        store.allot(trial, fingerprint="f", limit=1.0)
        store.reserve(trial.run, 1, "update", UPDATE, reuse_open=False)
    with pytest.raises(BudgetExceeded, match="at most the trials"):
        store.allot(trials[2], fingerprint="f", limit=1.0)
    with pytest.raises(BudgetExceeded, match="1 already allotted"):
        store.allot(allotment("next", epsilon=0.1), fingerprint="f", limit=1.0)
    store.close()
    with SiteStore.open(path, "A") as again:  # as folded from the disk
        assert again.spent("p") == {RECORDS: (1.0, 1e-5)}
        assert again.allotments("p")[0] == search
        again.verify("p")


def test_a_closed_search_admits_no_trial(store: SiteStore) -> None:
    search, trials = _search()
    store.allot(search, fingerprint="f", limit=None)
    store.allot(trials[0], fingerprint="f", limit=None)
    store.close_run("tune", "done")
    with pytest.raises(StoreError, match="to be open"):
        store.allot(trials[1], fingerprint="f", limit=None)
    store.allot(trials[0], fingerprint="f", limit=None)  # one that was admitted goes on


def test_what_was_kept_of_a_beaten_trial_is_dropped_and_its_chain_stays(store: SiteStore) -> None:
    search, trials = _search()
    store.allot(search, fingerprint="f", limit=None)
    for trial in trials[:2]:
        store.allot(trial, fingerprint="f", limit=None)
        hold = store.reserve(trial.run, 1, "update", UPDATE, reuse_open=False)
        store.commit(hold, release=b"update of " + trial.run.encode(), model_digest="m", local_state=b"kept by it")
    with pytest.raises(StoreError, match="to be closed"):
        store.forget("tune-1")
    store.close_run("tune-1", "done")
    store.forget("tune-1")
    assert store.sealed("tune-1", 1) is None
    assert store.local_state("tune-1", 1) is None
    found = store.sealed("tune-2", 1)
    assert found is not None
    assert found.release == b"update of tune-2"
    assert store.charged("tune-1") == [(UPDATE, 1)]
    store.verify("p")
