"""What a site may say instead of the truth: only its own turn is lost, with a reason, and the run comes to its end."""

import json
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.faults.rig import Rig, dropped
from tests.promises.fleet import DIM, Case

from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import MAGIC, VERSION, decode, encode, pack_vector

CLEAR, DP = Case("clear", deadline=8.0), Case("dp", deadline=8.0)
BAD = "Bergen"
Make = Callable[..., Rig]


def release(frame: bytes) -> Release:
    item = decode(frame, who="test")
    assert isinstance(item, Release)
    return item


def raw(frame: bytes, **header: Any) -> bytes:
    """Return the frame with another header, also one that no code of ours would write."""
    item = release(frame)
    whole = {"site": item.site, "round": item.round, "plan": item.plan_digest, "model": item.model_digest,
             "metrics": item.metrics, **header}  # fmt: skip
    text = json.dumps({key: value for key, value in whole.items() if value is not ...}).encode()
    text += b" " * (-(10 + len(text)) % 16)
    return struct.pack(">4sBBI", MAGIC, VERSION, 1, len(text)) + text + bytes(item.payload)


def vector(frame: bytes, value: float, *, everywhere: bool = False) -> bytes:
    item = release(frame)
    changed = np.frombuffer(item.payload, "<f4").copy()
    changed[slice(None) if everywhere else 0] = value
    return encode(replace(item, payload=pack_vector(changed)))


def lies(rig: Rig, lie: Callable[[bytes], bytes], kind: str = "train", number: int | None = 2) -> None:
    """Let the bad site change what it answers: in this round, or in every one."""

    def hook(task: ProtocolMessage, answer: Callable[[], bytes]) -> bytes:
        frame = answer()
        return lie(frame) if task.kind == kind and number in (None, task.round) else frame

    rig.hooks[BAD] = hook


REFUSED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "model hash mismatch": (lambda f: encode(replace(release(f), model_digest="0" * 64)), "trained another model"),
    "wrong shape": (lambda f: encode(replace(release(f), payload=bytes(4 * DIM + 4))), "sent 36 bytes instead of"),
    "wrong dtype": (lambda f: encode(replace(release(f), payload=np.zeros(DIM).tobytes())), "sent 64 bytes instead of"),
    "half precision": (lambda f: encode(replace(release(f), payload=np.zeros(DIM, "f2").tobytes())), "sent 16 bytes"),
    "missing key": (lambda f: raw(f, model=...), "sent bytes that are no message"),
    "key of another type": (lambda f: raw(f, round="2"), "sent bytes that are no message"),
    "negative round": (lambda f: raw(f, round=-2), "sent bytes that are no message"),
    "NaN": (lambda f: vector(f, math.nan), "instead of finite values"),
    "Inf": (lambda f: vector(f, -math.inf), "instead of finite values"),
    "NaN among the numbers": (lambda f: raw(f, metrics={"loss": math.nan}), "sent bytes that are no message"),
    "another plan": (lambda f: encode(replace(release(f), plan_digest="0" * 64)), "answered for another plan"),
    "a round that is over": (lambda f: encode(replace(release(f), round=1)), "late or replayed"),
    "another site's name": (lambda f: encode(replace(release(f), site="Cork")), "in another site's name"),
    "nothing": (lambda f: b"", "sent bytes that are no message"),
    "text that cannot be written": (
        lambda f: raw(f, metrics={"ledger_head": "\ud800"}), "sent bytes that are no message"
    ),
    "a number of 400 digits": (lambda f: raw(f, round=10**400), "sent bytes that are no message"),
}  # fmt: skip


@pytest.mark.parametrize("lie", REFUSED)
def test_refused(make: Make, lie: str) -> None:
    change, reason = REFUSED[lie]
    rig = make(DP).start()
    lies(rig, change)
    records = rig.run()
    assert dropped(records) == [set(), {BAD}, set()]
    assert reason in records[1]["dropped"][BAD]
    assert [record["status"] for record in records] == ["counted"] * 3
    assert rig.charged(BAD) >= 3  # what it computed and spoiled is spent


@pytest.mark.parametrize("value", [0.0, 1e38, -3e38])
def test_extreme_vectors(make: Make, value: float) -> None:
    """They are finite numbers of the right shape; the run goes on, and its model is finite or the last one that was."""
    rig = make(CLEAR).start()
    lies(rig, lambda frame: vector(frame, value, everywhere=True), number=2)
    rig.run()
    assert rig.journal is not None
    assert np.isfinite(rig.model).all()


COUNTS: list[dict[str, object]] = [
    {"n": 0}, {"n": -3}, {"n": 1e12}, {"n": 10**12}, {"n": 10**400}, {"n": True}, {"n": "7"}, {"n": None},
    {"n": 7, "accuracy": 1e300}, {"n": 7, "accuracy": -1}, {},
]  # fmt: skip


@pytest.mark.parametrize("claim", COUNTS, ids=str)
def test_claimed_counts(make: Make, claim: dict[str, object]) -> None:
    """A count that none can be leaves the averages to the others, as if the site had not answered."""
    rig = make(Case("clear", rounds=1, deadline=8.0)).start()
    lies(rig, lambda frame: raw(frame, metrics=claim), "evaluate", number=None)
    [record] = rig.run()
    rest = [record["per_site"][name] for name in rig.case.names if name != BAD]
    rows = sum(one["n"] for one in rest)
    assert record["accuracy"] == pytest.approx(sum(one["n"] * one["accuracy"] for one in rest) / rows)
    assert dropped([record]) == [set()]  # its update was sound and counts


def test_claimed_count_of_nan(make: Make) -> None:
    rig = make(Case("clear", rounds=1, deadline=8.0)).start()
    lies(rig, lambda frame: raw(frame, metrics={"n": math.nan, "accuracy": 1.0}), "evaluate", number=None)
    [record] = rig.run()
    assert record["per_site"][BAD] == "hidden"
    assert record["accuracy"] is not None


@pytest.mark.parametrize("charges", [0, -5, 10**12, 1.5, "all", None, 10**400], ids=lambda one: str(one)[:9])
def test_claimed_charges(make: Make, charges: object) -> None:
    """The coordinator's copy of the charges never falls below what it asked for, nor above what the plan allows."""
    rig = make(DP).start()
    lies(rig, lambda frame: raw(frame, metrics={**release(frame).metrics, "charges": charges}), number=None)
    rig.run()
    assert rig.coordinator is not None
    assert rig.coordinator.state.charges[BAD] == [3]


@pytest.mark.parametrize("loss", [1e308, -1e308, 10**400, True, "low", [1.0]], ids=lambda one: str(one)[:9])
def test_claimed_losses(make: Make, loss: object) -> None:
    rig = make(CLEAR).start()
    lies(rig, lambda frame: raw(frame, metrics={"loss": loss}), number=None)
    records = rig.run()
    assert dropped(records) == [set(), set(), set()]
    assert all(record["train_loss"] is None or 0 <= record["train_loss"] < 1e15 for record in records)


def test_one_unreadable_record_of_1910(make: Make) -> None:
    """A site whose data fails it in one record loses its turns; nothing of the record leaves, and the others go on."""
    rig = make(DP).start()
    learner: Any = rig.running[BAD].site._learner

    class Record:
        def __init__(self, number: int) -> None:
            self.number = number

        def __float__(self) -> float:
            if self.number == 1041:
                raise ValueError("record 1042: patient 42 has no pulse")
            return 0.0

    def train(*_: object) -> None:
        sum(float(Record(number)) for number in range(1910))

    learner.train = train
    records = rig.run()
    assert dropped(records) == [{BAD}] * 3
    assert all(record["dropped"][BAD] == "failed: ValueError" for record in records)
    assert [record["status"] for record in records] == ["counted"] * 3
    assert not any(b"1042" in frame or b"pulse" in frame for _, frame in rig.left)
