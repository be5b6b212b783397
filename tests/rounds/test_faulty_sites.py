"""One bad site loses its turn, never the round; too few answers skip it and change nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.rounds.bench import FEDAVG, SITE, Bench, heart

from consilia.core.update import Gone, ProtocolMessage, Release
from consilia.core.wire import decode, encode, pack_vector

BAD = "Hungary"
Answer = bytes | Gone | tuple[str, bytes]


def changed(frame: bytes, **changes: object) -> bytes:
    release = decode(frame, who="test")
    assert isinstance(release, Release)
    return encode(replace(release, **changes))  # type: ignore[arg-type]


def with_vector(frame: bytes, value: float) -> bytes:
    release = decode(frame, who="test")
    assert isinstance(release, Release)
    vector = np.frombuffer(release.payload, "<f4").copy()
    vector[0] = value
    return changed(frame, payload=pack_vector(vector))


FAULTS: dict[str, tuple[Callable[[bytes], list[Answer]], str]] = {
    "nan": (lambda f: [with_vector(f, np.nan)], "instead of finite values"),
    "inf": (lambda f: [with_vector(f, np.inf)], "instead of finite values"),
    "wrong shape": (lambda f: [changed(f, payload=b"1234")], "sent 4 bytes instead of"),
    "garbage": (lambda _: [b"\x80\x04 not a frame"], "no message"),
    "cut": (lambda f: [f[: len(f) - 3]], "bytes instead of"),
    "cut in the header": (lambda f: [f[:20]], "no message"),
    "empty": (lambda _: [b""], "no message"),
    "late": (lambda f: [changed(f, round=0)], "late or replayed"),
    "another plan": (lambda f: [changed(f, plan_digest="x")], "another plan"),
    "another model": (lambda f: [changed(f, model_digest="x")], "another model"),
    "nothing": (lambda _: [], "no answer"),
    "gone": (lambda _: [Gone(BAD, "connection reset")], "connection reset"),
    "failed": (lambda _: [encode(ProtocolMessage("failed", BAD, 2, {"error": "MemoryError"}))], "failed: MemoryError"),
    "in another's name": (lambda f: [changed(f, site="Cleveland")], "another site's name"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_round_counts_without_the_bad_site(fault: str, bench: Callable[..., Bench]) -> None:
    make, reason = FAULTS[fault]
    # Answers alternate: train of round 1, its evaluation, train of round 2 (the third), ...
    tamper = lambda site, n, frame: make(frame) if site == BAD and n == 3 else [frame]  # noqa: E731
    one = bench(heart(rounds=3), tamper)
    one.coordinator.train()
    first, second, third = one.journal.records()
    assert first["dropped"] == third["dropped"] == {}
    assert set(second["dropped"]) == {BAD}
    assert reason in second["dropped"][BAD]
    assert second["status"] == "counted"
    assert set(second["answered"]) == {"Cleveland", "Switzerland", "VA Long Beach"}
    assert np.isfinite(one.coordinator.state.model).all()


def test_a_second_answer_and_a_replay_change_nothing(bench: Callable[..., Bench]) -> None:
    plain = bench(heart(rounds=3), run="plain")
    plain.coordinator.train()
    kept: dict[str, bytes] = {}

    def tamper(site: str, n: int, frame: bytes) -> list[Answer]:
        first = kept.setdefault(site, frame)  # round 1's answer, played again in every later exchange
        return [frame, with_vector(frame, 9.0) if n in (1, 3) else frame, first, (BAD, frame)]

    twice = bench(heart(rounds=3), tamper, run="plain2")
    # The run's name is part of no stream: the reproducible mode gives the same model.
    twice.coordinator.train()
    assert np.array_equal(plain.coordinator.state.model, twice.coordinator.state.model)
    assert [r["answered"] for r in twice.journal.records()] == [r["answered"] for r in plain.journal.records()]


def test_below_quorum_the_round_is_skipped_and_the_model_stays(bench: Callable[..., Bench]) -> None:
    def tamper(site: str, n: int, frame: bytes) -> list[Answer]:
        return [] if site != "Cleveland" and n == 3 else [frame]

    one = bench(heart(rounds=3, aggregation="quorum = 0.75"), tamper)
    models = []
    one.coordinator.train(lambda record: models.append(one.coordinator.state.model.copy()))
    skipped = one.journal.records()[1]
    assert skipped["status"] == "skipped"
    assert skipped["reason"] == "1 of 4 answers; quorum 3"
    assert np.array_equal(models[0], models[1])
    assert not np.array_equal(models[1], models[2])
    # What was computed and sent counts as spent, skipped or not.
    spent = [record["epsilon_spent"] for record in one.journal.records()]
    assert one.coordinator.state.charges[BAD] == [3]
    assert spent == [None, None, None]  # the reproducible mode claims nothing


def test_all_sites_fail(bench: Callable[..., Bench]) -> None:
    one = bench(heart(rounds=2), lambda _site, _n, _frame: [])
    before = one.coordinator.state.model.copy()
    one.coordinator.train()
    model, final = one.coordinator.evaluate_result()
    assert np.array_equal(model, before)
    assert [r["status"] for r in one.journal.records()] == ["skipped", "skipped"]
    assert final.accuracy is None


def test_a_site_that_dies_in_its_learner_sends_only_the_class(bench: Callable[..., Bench]) -> None:
    one = bench(heart(rounds=1))

    def explode(*_: object) -> None:
        raise RuntimeError("patient 42 has a secret")

    one.simulation.sites[BAD]._learner.train = explode  # type: ignore[method-assign,assignment]
    one.coordinator.train()
    record = one.journal.records()[0]
    assert record["dropped"] == {BAD: "failed: RuntimeError"}
    assert all(b"patient 42" not in frame for _, frame in one.transport.up)


def test_a_slow_site_is_late_and_the_rest_counts(bench: Callable[..., Bench]) -> None:
    one = bench(heart(rounds=1, aggregation="deadline_seconds = 50.0\nquorum = 2"))
    now = [0.0]
    site = one.simulation.sites["VA Long Beach"]
    answer = site.handle

    def slow(frame: bytes) -> bytes:
        now[0] += 60.0
        return answer(frame)

    transport: Any = one.simulation.transport
    transport._sites = {**transport._sites, "VA Long Beach": slow}
    transport._clock = lambda: now[0]
    one.coordinator.train()
    assert one.journal.records()[0]["dropped"] == {"VA Long Beach": "no answer before the deadline"}
    assert one.journal.records()[0]["status"] == "counted"


def test_a_diverging_step_keeps_the_last_good_model(bench: Callable[..., Bench]) -> None:
    def tamper(site: str, n: int, frame: bytes) -> list[Answer]:
        return [with_vector(frame, 3e38) if n == 1 else frame]

    one = bench(heart(rounds=1, training=FEDAVG + "\nserver_learning_rate = 10.0", privacy='unit = "none"'), tamper)
    before = one.coordinator.state.model.copy()
    one.coordinator.train()
    record = one.journal.records()[0]
    assert record["status"] == "skipped"
    assert "not finite" in str(record["reason"])
    assert np.array_equal(one.coordinator.state.model, before)


def test_site_level_noise_hides_norms_where_they_would_void_the_claim(bench: Callable[..., Bench]) -> None:
    one = bench(heart(rounds=1, training=FEDAVG, privacy=SITE))
    one.coordinator.train()
    record = one.journal.records()[0]
    assert record["update_norms"] == record["cosine"] == "hidden"
