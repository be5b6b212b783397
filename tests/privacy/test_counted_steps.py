"""Pattern E: what the ledger on disk is charged is what was really drawn, counted where the normal numbers come from."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.privacy.lab import FEDSGD, SITES, TRAINING_ROWS, Lab, plan_of, privacy

from consilia.core.randomness import SecretRng
from consilia.dp.event import Event
from consilia.store.ledger_store import SiteStore

LabMaker = Callable[..., Lab]
Draws = Counter[tuple[str, int]]


@contextmanager
def counted(one: Lab) -> Iterator[Draws]:
    """Count the draws of normal vectors: (who drew, how many coordinates)."""
    found: Draws = Counter()
    who = ["server"]
    normal = SecretRng.normal

    def spied(rng: SecretRng, size: int) -> NDArray[np.float64]:
        found[who[0], size] += 1
        return normal(rng, size)

    def at(site: str, answer: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def handle(frame: bytes) -> bytes:
            who[0] = site
            try:
                return answer(frame)
            finally:
                who[0] = "server"

        return handle

    transport: Any = one.simulation.transport
    transport._sites = {site: at(site, answer) for site, answer in transport._sites.items()}
    with patch.object(SecretRng, "normal", spied):
        yield found


def on_disk(one: Lab, site: str, population: str = "heart") -> dict[Event, int]:
    """Read the charges back from the site's file, entry by entry."""
    with SiteStore.open(one.home / "sites" / f"{site}.sqlite", site) as store:
        store.verify(population)
        entries = list(store.entries(population))
    charged = Counter(
        Event.from_json(entry.body["event"])  # type: ignore[arg-type]
        for entry in entries
        if str(entry.kind) == "reserve"
    )
    allotted: list[Any] = [entry.body["allotment"] for entry in entries if str(entry.kind) == "allot"]
    stated = Counter({Event.from_json(event): times for item in allotted for event, times in item["events"]})
    assert charged == stated  # a whole run charges its whole allotment: nothing more, nothing less
    return charged


BATCHES = {site: math.ceil(n / 16) for site, n in TRAINING_ROWS.items()}
# name -> (training, draws of noise a round at a site, releases a round in the ledger)
RECORD_AT_SITE: dict[str, tuple[str, Callable[[str], int], int]] = {
    "fedsgd, full": (FEDSGD, lambda _: 1, 1),
    "fedsgd, fixed": ('algorithm = "fedsgd"\nbatch = "fixed"\nbatch_size = 16', lambda _: 1, 1),
    "steps, full": ('batch = "full"\nlocal_steps = 3', lambda _: 3, 3),
    "epochs, full": ('batch = "full"\nlocal_epochs = 2', lambda _: 2, 2),
    # A pass over fixed batches draws once a batch, and every row is in one of them.
    "epochs, fixed": ('batch = "fixed"\nbatch_size = 16\nlocal_epochs = 2', lambda site: 2 * BATCHES[site], 2),
    "steps, fixed": ('batch = "fixed"\nbatch_size = 16\nlocal_steps = 5', lambda _: 5, 5),
    "epochs, poisson": ('batch = "poisson"\nsampling_rate = 0.3\nlocal_epochs = 2', lambda _: 8, 8),
    "steps, poisson": ('batch = "poisson"\nsampling_rate = 0.3\nlocal_steps = 5', lambda _: 5, 5),
    "empty batches": ('batch = "poisson"\nsampling_rate = 0.0001\nlocal_steps = 5', lambda _: 5, 5),
    "scaffold": ('batch = "full"\nlocal_steps = 3\nscaffold = true', lambda _: 3, 3),
    "adam": ('batch = "full"\nlocal_steps = 3\noptimizer = "adam"', lambda _: 3, 3),
}
ROUNDS = 3


@pytest.mark.parametrize("name", RECORD_AT_SITE)
def test_record_noise_at_the_site(name: str, lab: LabMaker) -> None:
    training, draws, releases = RECORD_AT_SITE[name]
    one = lab(plan_of(rounds=ROUNDS, training=training, protect=privacy("record", "site", z=20.0)))
    with counted(one) as found:
        one.train()
    dim = one.prepared.model.dim
    assert found == {(site, dim): ROUNDS * draws(site) for site in SITES}
    for site in SITES:
        ((event, times),) = on_disk(one, site).items()
        assert (times, event.steps) == (ROUNDS, releases)


@pytest.mark.parametrize(("unit", "training"), [("record", FEDSGD), ("site", 'batch = "full"\nlocal_steps = 4')])
def test_noise_at_the_server_is_drawn_once_a_counted_round(unit: str, training: str, lab: LabMaker) -> None:
    one = lab(plan_of(rounds=ROUNDS, training=training, protect=privacy(unit, "server", z=5.0)))
    with counted(one) as found:
        one.train()
    assert found == {("server", one.prepared.model.dim): ROUNDS}
    for site in SITES:
        ((event, times),) = on_disk(one, site).items()
        assert (times, event.steps) == (ROUNDS, 1)


@pytest.mark.parametrize("scaffold", [False, True])
def test_site_noise_at_the_site_is_one_draw_whatever_the_steps(scaffold: bool, lab: LabMaker) -> None:
    training = f'batch = "fixed"\nbatch_size = 16\nlocal_epochs = 2\nscaffold = {str(scaffold).lower()}'
    more = "control_clip_norm = 1.0" if scaffold else ""
    one = lab(plan_of(rounds=ROUNDS, training=training, protect=privacy("site", "site", z=5.0, more=more)))
    with counted(one) as found:
        one.train()
    assert found == {(site, one.prepared.run_plan.spec.dim): ROUNDS for site in SITES}
    for site in SITES:
        ((event, times),) = on_disk(one, site).items()
        assert (times, event.steps) == (ROUNDS, 1)


@pytest.mark.parametrize(("every", "times"), [(1, 6), (2, 3), (3, 2), (7, 1)])
def test_charged_evaluations_are_charged_each_time(every: int, times: int, lab: LabMaker) -> None:
    one = lab(plan_of(rounds=5, protect=privacy("record", "site", z=20.0),
                      evaluation=f'metrics = "charged"\nnoise_multiplier = 9.0\nevery = {every}'))  # fmt: skip
    with counted(one) as found:
        one.train()
    assert found == {(site, one.prepared.model.dim): 5 for site in SITES} | {(site, 2): times for site in SITES}
    for site in SITES:
        assert sorted((event.noise_multiplier, n) for event, n in on_disk(one, site).items()) == [
            (9.0, times),
            (20.0, 5),
        ]


@pytest.mark.parametrize("seed", [0, 1])
def test_three_of_five_sites_a_round(seed: int, lab: LabMaker) -> None:
    rounds = 7
    plan = plan_of(rounds=rounds, sites='counts = "public"\npartition = "iid"\ncount = 5',
                   protect=privacy("record", "site", z=20.0), aggregation='selection = "count"\ncount = 3')  # fmt: skip
    plan = plan.model_copy(update={"run": plan.run.model_copy(update={"seed": seed})})
    one = lab(plan)
    with counted(one) as found:
        one.train()
    turns = {terms.name: terms.participations for terms in one.prepared.run_plan.sites}
    assert len(turns) == 5
    assert sum(turns.values()) == 3 * rounds
    assert max(turns.values()) <= math.ceil(3 * rounds / 5)
    assert found == {(site, one.prepared.model.dim): times for site, times in turns.items()}
    for site, times in turns.items():
        ((event, charged),) = on_disk(one, site).items()
        assert (charged, event.steps) == (times, 1)


def test_rounds_that_do_not_count_are_charged_all_the_same(lab: LabMaker) -> None:
    one = lab(plan_of(rounds=ROUNDS, protect=privacy("record", "site", z=20.0), aggregation="quorum = 4"))
    one.wire.missing = {"Hungary"}  # its answer left the site and was lost
    with counted(one) as found:
        one.train()
    assert [record["status"] for record in one.journal.records()] == ["skipped"] * ROUNDS
    assert found == {(site, one.prepared.model.dim): ROUNDS for site in SITES}
    for site in SITES:
        assert list(on_disk(one, site).values()) == [ROUNDS]


def test_a_step_that_nobody_charged_would_be_seen(lab: LabMaker) -> None:
    """The count is of draws, so a learner that did one step more than its event says shows (FLamby's fault)."""
    one = lab(
        plan_of(rounds=ROUNDS, training='batch = "full"\nlocal_steps = 3', protect=privacy("record", "site", z=20.0))
    )
    for site in one.simulation.sites.values():
        learner = site._learner
        planned = learner._work  # type: ignore[attr-defined]
        learner._work = lambda number, planned=planned: replace(planned(number), steps=4)  # type: ignore[attr-defined]
    with counted(one) as found:
        one.train()
    for site_name in SITES:
        ((event, times),) = on_disk(one, site_name).items()
        assert found[site_name, one.prepared.model.dim] != times * event.steps
