"""Sessions from end to end: the sum is exact, whoever falls silent, and memory and messages are as small as promised."""

import numpy as np
import pytest
from tests.secagg.consortium import Run, session, vector

from consilia.secagg import server


@pytest.mark.parametrize("bits", [16, 24, 32, 64])
@pytest.mark.parametrize("adversary", ["active", "passive"])
def test_everyone_answers_and_the_sum_is_exact(bits: int, adversary: str) -> None:
    run = Run(session(5, bits=bits, adversary=adversary, dim=40_000))  # more words than one block
    end = run.play()
    assert isinstance(end, server.Done)
    assert end.survivors == run.of.cohort
    assert end.dropped == {}
    np.testing.assert_array_equal(run.of.ring.center(end.total), run.expected(end.survivors))
    assert run.expected(end.survivors).any()


def test_the_sum_is_of_those_whose_vectors_came() -> None:
    run = Run(session(9, adversary="passive"), {"shares": ["site-000"], "masked": ["site-003"], "vote": ["site-008"]})
    end = run.play()
    assert isinstance(end, server.Done)
    assert end.survivors == tuple(site for site in run.of.cohort if site not in ("site-000", "site-003"))
    np.testing.assert_array_equal(run.of.ring.center(end.total), run.expected(end.survivors))
    assert {site: drop.stage for site, drop in end.dropped.items()} == {
        "site-000": "shares", "site-003": "masked", "site-008": "vote"
    }  # fmt: skip
    assert (vector("site-000", run.of) != 0).any()
