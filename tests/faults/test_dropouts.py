"""Sites that are lost in the middle of a secure sum, over real lines: at each step, one is tolerated and two are not."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.faults.rig import Rig, all_back, at, dropped, in_process, once
from tests.promises.fleet import Case

MASKS = Case("masks-dp", deadline=8.0)
BAD, WORSE = "Bergen", "Derby"
Make = Callable[..., Rig]


def lose(rig: Rig, step: str, *names: str, number: int = 2) -> None:
    """Break these sites' lines when they are asked for this step: the answer is made, and does not leave."""
    for name in names:

        def fault(answer: Callable[[], bytes], name: str = name) -> bytes:
            rig.cut(name)
            return answer()

        rig.hooks[name] = once(at(step, number), fault)


def came_back(rig: Rig, *names: str) -> Callable[[object], None]:
    """After each round let the lost ones come back."""

    def between(_: object) -> None:
        for name in names:
            rig.mend(name)
        all_back(rig)(_)

    return between


STEPS = {
    "before READY": "begin", "after READY": "adverts", "after share": "train", "before unmask": "survivors",
    "in the unmask step": "votes",
}  # fmt: skip


@pytest.mark.parametrize("when", STEPS)
def test_dropout(make: Make, when: str) -> None:
    rig = make(MASKS).start()
    lose(rig, STEPS[when], BAD)
    records = rig.run(came_back(rig, BAD))
    assert [record["status"] for record in records] == ["counted"] * 3
    assert dropped(records)[0] == dropped(records)[2] == set()
    vector_was_in = when in ("before unmask", "in the unmask step")
    assert dropped(records)[1] == (set() if vector_was_in else {BAD})
    assert vector_was_in or "connection lost" in records[1]["dropped"][BAD]


def test_dropout_during_masked_upload(make: Make) -> None:
    """Half of its masked vector came: it is as if none had."""
    rig = make(MASKS).start()

    def fault(answer: Callable[[], bytes]) -> bytes:
        frame = answer()
        line = rig.lines[BAD]
        line.refuse, line.up.cut_at = True, line.up.passed + 150
        return frame

    rig.hooks[BAD] = once(at("train", 2), fault)
    records = rig.run(came_back(rig, BAD))
    assert dropped(records) == [set(), {BAD}, set()]
    assert [record["status"] for record in records] == ["counted"] * 3


def test_quorum_lost_in_the_unmask_step(make: Make) -> None:
    """All vectors are there, and too few are left to open their sum: it stays closed, and is charged."""
    rig = make(MASKS).start()
    lose(rig, "votes", BAD, WORSE)
    models = []
    back = came_back(rig, BAD, WORSE)

    def between(record: object) -> None:
        assert rig.coordinator is not None
        models.append(rig.coordinator.state.model.copy())
        back(record)

    records = rig.run(between)
    assert [record["status"] for record in records] == ["counted", "skipped", "counted"]
    assert "needs 3 shares; got 2" in records[1]["reason"]
    assert np.array_equal(models[0], models[1])
    assert not np.array_equal(models[1], models[2])
    for name in rig.case.names:
        assert rig.charged(name) == 3  # their vectors had left


def test_more_lost_than_are_tolerated(make: Make) -> None:
    rig = make(MASKS).start()
    lose(rig, "train", BAD, WORSE)
    records = rig.run(came_back(rig, BAD, WORSE))
    assert [record["status"] for record in records] == ["counted", "skipped", "counted"]
    assert set(records[1]["dropped"]) >= {BAD, WORSE}


def test_an_unbroken_secure_run_is_the_run_in_one_process(make: Make) -> None:
    case = Case("masks", reproducible=True, deadline=8.0)
    rig = make(case).start()
    rig.run()
    assert np.array_equal(rig.model, in_process(case, rig.folder / "again", rig.shelf))
