"""A site in front of tasks that are repeated, replayed, foreign or broken."""

from collections.abc import Callable

import numpy as np
from tests.rounds.bench import Bench, heart

from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import decode, encode, pack_vector
from consilia.rounds.site import Site

SITE = "Hungary"


def task(one: Bench, *, kind: str = "train", number: int = 1, model: np.ndarray | None = None, **body: object) -> bytes:
    vector = one.prepared.initial if model is None else model
    agreed = {"plan": one.prepared.run_plan.digest, "run": "bench", "counted": 0}
    return encode(ProtocolMessage(kind, SITE, number, {**agreed, **body}, pack_vector(vector)))  # type: ignore[dict-item]


def answer(site: Site, frame: bytes) -> Release | ProtocolMessage:
    return decode(site.handle(frame), who="test")


def charged(one: Bench) -> int:
    store = one.simulation.sites[SITE]._store
    assert store is not None
    return sum(count for _, count in store.charged("bench"))


def test_the_same_task_gets_the_same_bytes_and_one_charge(bench: Callable[..., Bench]) -> None:
    one = bench(heart(reproducible=False))
    site = one.simulation.sites[SITE]
    first = site.handle(task(one))
    assert site.handle(task(one)) == first
    assert charged(one) == 1
    assert site.handle(task(one, number=2)) != first
    assert charged(one) == 2


def test_another_model_in_an_answered_round_is_refused(bench: Callable[..., Bench]) -> None:
    one = bench(heart(reproducible=False))
    site = one.simulation.sites[SITE]
    site.handle(task(one))
    reply = answer(site, task(one, model=one.prepared.initial + 1))
    assert isinstance(reply, ProtocolMessage)
    assert reply.kind == "refused"
    assert reply.body == {"error": "ProtocolError"}
    assert charged(one) == 1


def test_foreign_and_broken_tasks_are_refused_before_any_charge(bench: Callable[..., Bench]) -> None:
    one = bench(heart())
    site = one.simulation.sites[SITE]
    nan = one.prepared.initial.copy()
    nan[0] = np.nan
    for frame in (
        task(one, plan="other"),
        task(one, run="other"),
        task(one, kind="erase"),
        task(one, model=one.prepared.initial[:-1]),
        task(one, model=nan),
        encode(Release(b"", SITE, 1, "p", "m")),
        b"",
        b"CNSL\x01\x02\xff\xff\xff\xff",
    ):
        reply = answer(site, frame)
        assert isinstance(reply, ProtocolMessage)
        assert reply.kind == "refused"
        assert set(reply.body) == {"error"}
    assert charged(one) == 0


def test_more_rounds_than_agreed_are_refused_by_the_sites_own_ledger(bench: Callable[..., Bench]) -> None:
    one = bench(heart(rounds=2, reproducible=False))
    site = one.simulation.sites[SITE]
    kinds = [type(answer(site, task(one, number=n))).__name__ for n in (1, 2, 3)]
    assert kinds == ["Release", "Release", "ProtocolMessage"]
    assert charged(one) == 2


def test_metrics_stay_where_the_plan_hides_them(bench: Callable[..., Bench]) -> None:
    one = bench(heart(metrics="hidden"))
    reply = answer(one.simulation.sites[SITE], task(one, kind="evaluate"))
    assert isinstance(reply, ProtocolMessage)
    assert reply.kind == "refused"
    one.coordinator.train()
    _, final = one.coordinator.evaluate_result()
    assert final.accuracy is None
    assert set(final.per_site.values()) == {"hidden"}
