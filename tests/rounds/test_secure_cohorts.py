"""Secure sums over cohorts that change from round to round, and over many small sites that one process trains together."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.rounds.bench import FEDSGD, HEART, RECORD, Bench
from tests.rounds.secure_bench import SITES, secret, watch

from consilia.plan.load import from_text
from consilia.plan.schema import Plan
from consilia.secagg.transcript import Entry
from consilia.transport.incohort import InCohort

BenchMaker = Callable[..., Bench]
DISTRIBUTED = RECORD.replace('"site"', '"distributed"')


def exact(one: Bench) -> None:
    """Train, and hold every opened sum against what its sites put in."""
    seen = watch(one)
    one.coordinator.train()
    for number, record in enumerate(one.journal.records(), 1):
        if record["status"] == "counted":
            assert np.array_equal(seen.out[number].total, seen.sum(number, record["answered"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["masks", "paillier"])
def test_a_cohort_of_its_own_each_round(mode: str, bench: BenchMaker) -> None:
    rounds = 6 if mode == "masks" else 3
    one = bench(secret(mode, rounds=rounds, dropouts=0, privacy=DISTRIBUTED, reproducible=False, metrics="hidden",
                       aggregation='selection = "count"\ncount = 3'))  # fmt: skip
    exact(one)
    records = one.journal.records()
    assert [(record["status"], record["answered"]) for record in records] == [
        ("counted", record["asked"]) for record in records
    ]
    assert len({tuple(record["asked"]) for record in records}) > 1
    for site in SITES:
        store = one.simulation.sites[site]._store
        assert store is not None
        assert sum(count for _, count in store.charged("bench")) == sum(site in record["asked"] for record in records)
        if mode == "masks":  # a site that sat out a round holds its entry, too, once it is asked again
            kept = [Entry.from_json(record["transcript"]).hash for record in records]
            last = max(record["round"] for record in records if site in record["asked"])
            assert len(store.sessions.transcript("bench")) == last - 1 <= len(kept)


def test_a_cohort_that_is_too_small_costs_its_round(bench: BenchMaker) -> None:
    one = bench(secret("masks", rounds=6, dropouts=0, metrics="hidden",
                       aggregation='selection = "poisson"\nfraction = 0.7'))  # fmt: skip
    exact(one)
    records = one.journal.records()
    few = [record for record in records if len(record["asked"]) < 3]
    assert 0 < len(few) < len(records)
    for record in records:
        assert record["status"] == ("skipped" if record in few else "counted")
        assert record not in few or "too few for a secure sum" in str(record["reason"])


@pytest.mark.parametrize("mode", ["masks", "rlwe"])
def test_many_small_sites_that_train_together(mode: str, bench: BenchMaker) -> None:
    text = heart_of_many(f'mode = "{mode}"\ndropouts = 2')
    one = bench(text)
    assert isinstance(one.simulation.transport, InCohort)
    exact(one)
    assert [record["status"] for record in one.journal.records()] == ["counted"] * 2


def heart_of_many(section: str) -> Plan:
    text = HEART.format(rounds=2, training=f"{FEDSGD}\n[secure_sum]\n{section}", privacy=DISTRIBUTED, aggregation="",
                        metrics="public", evaluation="", reproducible="false")  # fmt: skip
    return from_text(
        text.replace('counts = "public"', 'counts = "public"\npopulation = "heart"\npartition = "iid"\ncount = 12')
    )
