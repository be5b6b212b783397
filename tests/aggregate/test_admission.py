"""Only the offender loses its turn."""

from dataclasses import replace

import numpy as np
import pytest

from consilia.aggregate.admission import Gate
from consilia.core.update import Bytes, ProtocolMessage, Release, Vector
from consilia.core.wire import pack_vector
from consilia.pipeline.chain import Chain

GOOD = pack_vector(np.ones(3, np.float32))


def take(payload: Bytes, who: str) -> Vector:
    return Chain((), 3).unpack(payload, who)


def gate() -> Gate[Vector]:
    return Gate(5, "plan", "model", frozenset({"a", "b"}), take)


def release(**changes: object) -> Release:
    return replace(Release(GOOD, "a", 5, "plan", "model"), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"round": 4}, "late or replayed"),
        ({"plan_digest": "other"}, "another plan"),
        ({"model_digest": "other"}, "another model"),
        ({"payload": GOOD[:-1]}, "sent 11 bytes instead of a vector of 3"),
        (
            {"payload": pack_vector(np.array([1, np.nan, 0], np.float32))},
            "sent NaN or infinite values instead of finite values",
        ),
        (
            {"payload": pack_vector(np.array([1, np.inf, 0], np.float32))},
            "sent NaN or infinite values instead of finite values",
        ),
    ],
)
def test_a_bad_answer_drops_its_sender_only(changes: dict[str, object], reason: str) -> None:
    g = gate()
    assert reason in str(g.offer("a", release(**changes)))
    assert g.offer("b", release(site="b")) is None
    assert set(g.admitted) == {"b"}
    assert reason in g.dropped["a"]


def test_a_good_answer_after_a_bad_one_counts() -> None:
    g = gate()
    g.offer("a", release(round=4))
    assert g.offer("a", release()) is None
    assert g.dropped == {}


def test_a_second_answer_changes_nothing() -> None:
    g = gate()
    g.offer("a", release())
    other = release(payload=pack_vector(np.full(3, 7, np.float32)))
    assert "twice" in str(g.offer("a", other))
    assert g.admitted["a"].tolist() == [1, 1, 1]
    assert g.dropped == {}


def test_an_answer_in_anothers_name_costs_the_other_nothing() -> None:
    g = gate()
    assert "another site's name" in str(g.offer("b", release(site="a")))
    assert "b" in g.dropped
    assert "a" not in g.dropped
    assert g.offer("a", release(site="a")) is None


def test_sites_not_asked_and_refusals() -> None:
    g = gate()
    assert "not asked" in str(g.offer("z", release(site="z")))
    assert "z" not in g.dropped
    assert "refused: BudgetExceeded" in str(
        g.offer("a", ProtocolMessage("refused", "a", 5, {"error": "BudgetExceeded"}))
    )
    assert g.dropped["a"] == "refused: BudgetExceeded"
