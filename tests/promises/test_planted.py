"""A checker that never fails is worth nothing: for each promise a fault is planted, and what tries the promise finds it.

Schedules find most of them. What no schedule shows, memory and what does not fit, is found by the checks that the tests of
P12 and P13 use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.promises import plants
from tests.promises.fleet import Case
from tests.promises.oracle import ViolationError
from tests.promises.schedules import run
from tests.promises.values import LINUX, require_dropped, require_refused, require_small

Patch = pytest.MonkeyPatch
SEEDS = range(30)


@dataclass(frozen=True)
class Plant:
    """A fault of the software, the plan in which it shows, and how rough the network has to be for it."""

    promise: str
    sow: Callable[[Patch], None]
    case: Case = field(default_factory=lambda: Case("clear"))
    rates: Mapping[str, float] = field(default_factory=dict)


PLANTS = [
    Plant("P1", plants.two_transactions, rates={"kill coordinator": 0.05}),
    Plant("P2", plants.uncharged_scores, Case("dp")),
    Plant("P3", plants.answers_anew, Case("dp"), {"kill coordinator": 0.05}),
    Plant("P5", plants.second_counts, rates={"another body": 0.3}),
    Plant("P4", plants.late_counts, rates={"delay": 0.2}),
    Plant("P5", plants.order_matters),
    Plant("P6", plants.garbage_stops_all, rates={"corrupt": 0.1}),
    Plant("P6", plants.late_costs_its_site, Case("masks"), {"repeat": 0.2}),
    Plant("P7", plants.waits_for_all, Case("masks"), {"drop": 0.05}),
    Plant("P7", plants.no_deadline, rates={"drop": 0.05}),
    Plant("P8", plants.no_end),
    Plant("P9", plants.diverges),
    Plant("P10", plants.opens_for_two, Case("masks"), {"drop": 0.1}),
    Plant("P11", plants.labels_are_enough, Case("dp"), {"kill site": 0.05, "kill coordinator": 0.05}),
    Plant("P11", plants.labels_are_enough, Case("masks"), {"kill coordinator": 0.03}),
    Plant("P11", plants.one_vector_in_two_sums, Case("masks"), {"kill coordinator": 0.05}),
    Plant("P11", plants.keeps_secrets, Case("masks-dp")),
    Plant("P14", plants.newest_state, rates={"drop": 0.2}),
    Plant("P14", plants.forgets_its_state),
]  # fmt: skip


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.promise}-{plant.sow.__name__}")
def test_a_planted_fault_is_found(plant: Plant, place: Path, shelf: Path, monkeypatch: Patch) -> None:
    run(0, place / "run", shelf, plant.case, {"drop": 0.01})  # as it is, it holds
    plant.sow(monkeypatch)
    found: dict[str, str] = {}
    for seed in SEEDS:
        try:
            run(seed, place / "run", shelf, plant.case, plant.rates)
        except ViolationError as violation:
            found[violation.promise] = f"schedule {seed}: {violation}"
        if plant.promise in found:  # a fault may break other promises on the way
            return
    raise AssertionError(f"no schedule found it: {found}")


@pytest.mark.skipif(not LINUX, reason="reads Linux's /proc")
@pytest.mark.parametrize("sow", [plants.keeps_every_answer, plants.keeps_every_vector])
def test_memory_that_grows_with_sites_is_found(sow: Callable[[Patch], None]) -> None:
    with pytest.raises(ViolationError, match="P12"):
        require_small(5, sown=sow.__name__)


@pytest.mark.parametrize(("what", "sow"), [
    ("version", plants.reads_any_version), ("length", plants.trains_any_length), ("plan", plants.works_for_any_plan),
    ("run", plants.works_for_any_plan), ("plan", plants.names_no_values), ("run", plants.names_no_values),
])  # fmt: skip
def test_a_door_that_lets_anything_in_is_found(
    what: str, sow: Callable[[Patch], None], place: Path, shelf: Path, monkeypatch: Patch
) -> None:
    sow(monkeypatch)
    with pytest.raises(ViolationError, match="P13"):
        require_refused(what, place, shelf)


def test_a_coordinator_that_takes_any_length_is_found(monkeypatch: Patch) -> None:
    plants.takes_any_length(monkeypatch)
    with pytest.raises(ViolationError, match="P13"):
        require_dropped()
