"""P10. With fewer sites than the threshold nothing is opened, ever: no site gives a share away before so many have signed the
same list of survivors.
"""

from pathlib import Path

import pytest
from tests.promises.fleet import Case
from tests.promises.scenes import calm

from consilia.core.update import ProtocolMessage, Release


@pytest.mark.parametrize("stage", ["advert", "shares", "train", "vote"])
def test_two_of_four_lost_at_a_stage_leave_the_sum_shut(stage: str, place: Path, shelf: Path) -> None:
    world = calm(Case("masks"), place, shelf)
    revealed: list[str] = []
    handle = world.network._handle
    left = world.oracle.left

    def silent(site: str, frame: bytes) -> bytes | None:
        answer = handle(site, frame)
        return None if site in ("Bergen", "Cork") and _stage(frame) == stage else answer

    def listening(site: str, task: ProtocolMessage, answer: Release | ProtocolMessage, frame: bytes) -> None:
        # Scores of the result are another sum, which all are in.
        update = task.body.get("purpose") == "update"
        if update and isinstance(answer, ProtocolMessage) and answer.body.get("stage") == "reveal":
            revealed.append(site)
        left(site, task, answer, frame)

    world.network._handle = silent
    world.oracle.left = listening  # type: ignore[method-assign]
    world.run()
    assert world.oracle.statuses == ["skipped"] * 3
    assert revealed == []


def _stage(frame: bytes) -> str:
    from consilia.core.wire import decode

    task = decode(frame, who="test")
    assert isinstance(task, ProtocolMessage)
    asks = {"begin": "advert", "adverts": "shares", "survivors": "vote"}
    return asks.get(str(task.body.get("stage")), task.kind)
