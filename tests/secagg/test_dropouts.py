"""Every site may fall silent at every stage: the sum is exactly the survivors', or no secret can be opened by anyone.

All 6^n ways for n sites to fall silent (never, or before each of five messages) are played for n to 5.
"""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from tests.secagg.consortium import STAGES, Run, session, starts

from consilia.secagg import server
from consilia.secagg.messages import Refused, Reveal

NEVER = len(STAGES)


def play(count: int, adversary: str, when: tuple[int, ...]) -> Run:
    of = session(count, adversary=adversary)
    silent: dict[str, set[str]] = {stage: set() for stage in STAGES}
    for site, stage in zip(of.cohort, when, strict=True):
        if stage < NEVER:
            silent[STAGES[stage]].add(site)
    run = Run(of, silent)
    run.play()
    return run


def holds(run: Run, when: tuple[int, ...]) -> bool:
    """Check one run and return whether it came to a sum."""
    of, stage = run.of, dict(zip(run.of.cohort, when, strict=True))
    at_least = {name: [site for site in of.cohort if stage[site] > place] for place, name in enumerate(STAGES)}
    survivors = at_least["masked"]
    wanted = len(survivors) >= of.fewest and len(at_least["vote"]) >= of.threshold <= len(at_least["reveal"])
    given = Counter(owner for _, message in run.said if isinstance(message, Reveal) for owner in message.shares)
    assert not [message for _, message in run.said if isinstance(message, Refused)]
    if wanted:
        assert isinstance(run.end, server.Done)
        assert list(run.end.survivors) == survivors
        np.testing.assert_array_equal(of.ring.center(run.end.total), run.expected(survivors))
        assert {site: STAGES.index(drop.stage) for site, drop in run.end.dropped.items()} == {
            site: place for site, place in stage.items() if place < NEVER
        }
    else:
        assert isinstance(run.end, server.Abort)
        if len(survivors) < of.fewest or len(at_least["vote"]) < of.threshold:
            assert not given  # no share was given away at all
        assert max(given.values(), default=0) < of.threshold  # what was given away by then opens nothing
    return wanted


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize(
    ("count", "adversary"),
    [(3, "active"), (3, "passive"), (4, "active"), (4, "passive"), pytest.param(5, "passive", marks=pytest.mark.slow)],
)
def test_every_site_at_every_stage(count: int, adversary: str) -> None:
    ways = list(product(range(NEVER + 1), repeat=count))
    sums = sum(holds(play(count, adversary, when), when) for when in ways)
    assert 0 < sums < len(ways)


@pytest.mark.usefixtures("remembered")
def test_every_subset_of_five_at_every_stage_against_an_active_coordinator() -> None:
    for stage in range(NEVER):
        for subset in product((stage, NEVER), repeat=5):
            assert holds(play(5, "active", subset), subset) == (subset.count(stage) <= 1)


def test_five_sites_and_five_drops_that_the_machine_must_get_right_without_a_memory() -> None:
    for when in ((0, 5, 5, 5, 5), (5, 1, 5, 5, 5), (5, 5, 2, 5, 5), (5, 5, 5, 3, 5), (5, 5, 5, 5, 4), (1, 5, 5, 2, 5)):
        assert holds(play(5, "passive", when), when)


def test_the_same_seed_gives_the_same_keys_or_the_memory_would_remember_nothing() -> None:
    first, second = starts(session(3)), starts(session(3))
    assert all(first[site].keyring.unsigned() == second[site].keyring.unsigned() for site in first)
