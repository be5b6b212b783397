"""The site's record of what left: a line before each message, true to the byte, for its owner alone, and no word of the data."""

import hashlib
import json
import random
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.transport.link.pipe import Pipe
from tests.transport.link.test_courier import courier, hub_in
from tests.transport.link.waiting import PATIENCE

from consilia.core.errors import StoreError
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import encode
from consilia.federation.audit import AuditLog
from consilia.rounds.ports import Arrival


def lines(log: AuditLog) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.path.read_text().splitlines()]


def test_bytes_and_digest_are_those_of_the_frame(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    frames = [
        encode(ProtocolMessage("surveyed", "north", 0, {"run": "heart-1"})),
        encode(ProtocolMessage("sum", "north", 3, {"run": "heart-1", "stage": "advert"}, b"x" * 1000)),
        b"no frame at all",
        b"",
        b"\0" * (1 << 21),  # a large one is looked at where it lies
    ]
    for number, frame in enumerate(frames):
        log.note(bytes([number]), frame if number else memoryview(frame))
    told = lines(log)
    assert [line["bytes"] for line in told] == [len(frame) for frame in frames]
    assert [line["sha256"] for line in told] == [hashlib.sha256(frame).hexdigest() for frame in frames]
    assert [line["message"] for line in told] == ["00", "01", "02", "03", "04"]
    assert [line["what"] for line in told] == ["surveyed", "sum: advert", *["other bytes"] * 3]
    assert [line["run"] for line in told[:2]] == ["heart-1", "heart-1"]
    assert [line["round"] for line in told[:2]] == [0, 3]


def test_what_is_written_down_is_what_arrives(tmp_path: Path) -> None:
    """Over a line that breaks, so that messages are sent again: the bytes of each are those that the coordinator has."""
    log, chance = AuditLog(tmp_path / "audit.jsonl"), random.Random(1)
    sent = [chance.randbytes(size) for size in (0, 1, 1000, 300_000, 2_000_000)]
    answers = iter(sent)
    lives = iter(lambda: chance.randint(3, 14), None)
    with hub_in(tmp_path) as hub, courier(tmp_path, [Pipe(hub, "a", lives)], lambda _: next(answers), leaves=log.note):
        for _ in sent:
            hub.send("a", b"task")
        arrived = [bytes(event.frame) for event in hub.events(PATIENCE * 3) if isinstance(event, Arrival)]
    assert arrived == sent
    told = {line["message"]: (line["bytes"], line["sha256"]) for line in lines(log)}
    assert sorted(told.values()) == sorted((len(frame), hashlib.sha256(frame).hexdigest()) for frame in arrived)


@pytest.mark.parametrize(
    "body", [{"error": "DataError"}, {"answer": "refused", "clauses": ["privacy.max_epsilon_run"]}]
)
def test_a_line_says_why_and_not_what(tmp_path: Path, body: dict[str, Any]) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(b"1", encode(ProtocolMessage("offered", "north", 0, {"run": "heart-1", "secret": "4711", **body})))
    [line] = lines(log)
    assert line["what"] == f"offered: {body.get('error') or body['answer']}"
    assert "4711" not in log.path.read_text()
    assert set(line) == {"time", "run", "round", "what", "bytes", "sha256", "message"}


def test_a_release_is_told_by_plan_and_round(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    made = [Release(payload, "north", 4, "d" * 64, "e" * 64) for payload in (np.ones(2, np.float32).tobytes(), b"")]
    for one in made:
        log.note(b"1", encode(one))
    told = lines(log)
    assert [line["what"] for line in told] == ["an update, or its part of a sum", "scores"]
    assert {(line["plan"], line["round"]) for line in told} == {("d" * 64, 4)}


def test_only_its_owner_reads_it_and_it_is_appended_to(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.note(b"1", b"one")
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    AuditLog(log.path).note(b"1", b"one")  # after a restart; a message that is sent again has a second line
    assert [line["message"] for line in lines(log)] == ["31", "31"]


def test_what_cannot_be_written_down_does_not_leave(unprivileged: Path) -> None:
    unprivileged.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="needs to be written before anything leaves; got Permission denied"):
            AuditLog(unprivileged / "audit.jsonl").note(b"1", b"one")
    finally:
        unprivileged.chmod(0o700)
    with pytest.raises(StoreError, match="got No such file or directory"):
        AuditLog(unprivileged / "gone" / "audit.jsonl").note(b"1", b"one")
