"""What networks do to a site's line costs that site its turn at most; what it can sleep off costs nothing."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.faults.proxy import Line
from tests.faults.rig import Rig, all_back, at, dropped, once
from tests.promises.fleet import Case

from consilia.core.update import Gone, ProtocolMessage
from consilia.core.wire import encode
from consilia.rounds.ports import Arrival

DP = Case("dp", deadline=6.0)
BAD = "Bergen"
Make = Callable[..., Rig]


def then_back(rig: Rig, work: Callable[[], None]) -> Callable[[dict[str, Any]], None]:
    """After the second round do this, and wait for everyone."""

    def between(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            work()
        all_back(rig)(record)

    return between


def in_training(rig: Rig, work: Callable[[Line], None], number: int = 2) -> None:
    """Do this to the bad site's line up, while it trains for this round: what follows is its answer."""

    def fault(answer: Callable[[], bytes]) -> bytes:
        frame = answer()
        work(rig.lines[BAD].up)
        return frame

    rig.hooks[BAD] = once(at("train", number), fault)


def handled_once(rig: Rig) -> bool:
    return len(rig.asked) == len(set(rig.asked))


def test_without_faults_everyone_counts(make: Make) -> None:
    assert dropped(make(DP).start().run()) == [set(), set(), set()]


@pytest.mark.parametrize(("place", "how"), [(1, "reset"), (40, "close"), (250, "reset")])
def test_body_truncated_at_k(make: Make, place: int, how: str) -> None:
    rig = make(DP).start()

    def cut(line: Line) -> None:
        line.cut_at, line.cut_by = line.passed + place, how  # type: ignore[assignment]

    in_training(rig, cut)
    assert dropped(rig.run()) == [set(), set(), set()]
    assert rig.lines[BAD].accepted > 1  # it was cut, and the site came back in time with the same answer
    assert handled_once(rig)


@pytest.mark.parametrize("place", [0, 60, 250])
def test_flipped_byte(make: Make, place: int) -> None:
    rig = make(DP).start()

    def flip(line: Line) -> None:
        line.flip_at = line.passed + place

    in_training(rig, flip)
    assert dropped(rig.run()) == [set(), set(), set()]
    assert rig.lines[BAD].accepted > 1  # TLS noticed
    assert handled_once(rig)


def test_rst_mid_body(make: Make) -> None:
    rig = make(DP).start()
    body = bytes(3_000_000)
    rig.hooks[BAD] = lambda task, answer: body
    rig.lines[BAD].up.cut_at = rig.lines[BAD].up.passed + 1_000_000
    assert _asked(rig, 5.0) == [Arrival(BAD, body)]
    assert rig.lines[BAD].accepted == 2
    assert rig.lines[BAD].up.passed < len(body) + 1_500_000  # it went on where it had been cut
    assert len(rig.asked) == 1


def _asked(rig: Rig, timeout: float) -> list[Arrival | Gone]:
    """Ask the bad site something outside of any run."""
    rig.hub.send(BAD, encode(ProtocolMessage("test", BAD, 1)))
    return list(rig.hub.events(timeout))


def test_slow_link(make: Make) -> None:
    """An answer that is on its way at the deadline is waited for while it is no slower than the floor (20 kB/s here)."""
    rig = make(DP, heartbeat=1.0).start()
    rig.hooks[BAD] = lambda task, answer: bytes(400_000)
    rig.lines[BAD].up.rate = 200_000
    begun = time.monotonic()
    assert _asked(rig, 0.8) == [Arrival(BAD, bytes(400_000))]
    assert time.monotonic() - begun > 1.6  # twice the deadline
    rig.lines[BAD].up.rate = 6_000
    assert _asked(rig, 0.8) == [Gone(BAD, "no answer before the deadline")]


def test_slow_link_others_do_not_wait_behind_it(make: Make) -> None:
    rig = make(DP, heartbeat=0.6).start()
    rig.lines[BAD].up.rate = rig.lines[BAD].down.rate = 20_000
    assert dropped(rig.run()) == [set(), set(), set()]


def test_black_hole(make: Make) -> None:
    """Every packet is lost for a while; TCP sends them again afterwards."""
    rig = make(DP).start()
    in_training(rig, lambda _: rig.lines[BAD].hang())
    records = rig.run(then_back(rig, lambda: rig.lines[BAD].hang(False)))
    assert dropped(records) == [set(), {BAD}, set()]
    assert "connection lost" in records[1]["dropped"][BAD]
    assert records[1]["status"] == "counted"
    assert records[1]["seconds"] < DP.deadline  # nobody waited for the deadline


def test_black_hole_that_eats_bytes(make: Make) -> None:
    """A box on the way takes bytes and delivers none, until its connections break."""
    rig = make(DP).start()
    in_training(rig, lambda _: rig.lines[BAD].swallow(60.0))

    def ends() -> None:
        rig.lines[BAD].swallow(0.0)
        rig.lines[BAD].reset()

    records = rig.run(then_back(rig, ends))
    assert dropped(records) == [set(), {BAD}, set()]


def test_half_open(make: Make) -> None:
    """Each end believes in its connection; only silence shows that it is none, and then a new one is made."""
    rig = make(DP).start()
    in_training(rig, lambda _: rig.lines[BAD].freeze())
    records = rig.run(all_back(rig))
    assert dropped(records)[0] == dropped(records)[2] == set()
    assert dropped(records)[1] <= {BAD}  # back within its round, or too late for it
    assert rig.lines[BAD].accepted == 2


def test_slow_close(make: Make) -> None:
    rig = make(DP).start()
    for line in (rig.lines[BAD].up, rig.lines[BAD].down):
        line.close_after = 3.0
    in_training(rig, lambda line: setattr(line, "cut_at", line.passed + 10))
    assert dropped(rig.run(all_back(rig))) == [set(), set(), set()]


def test_small_pieces_late_and_unevenly(make: Make) -> None:
    rig = make(DP).start()
    for name in rig.case.names:
        for line in (rig.lines[name].up, rig.lines[name].down):
            line.slices, line.latency, line.jitter = 97, 0.01, 0.02
    assert dropped(rig.run()) == [set(), set(), set()]


def test_every_connection_twice(make: Make) -> None:
    rig = make(DP)
    for line in rig.lines.values():
        line.twice = True
    assert dropped(rig.start().run()) == [set(), set(), set()]
    assert handled_once(rig)


def test_a_line_that_breaks_all_the_time(make: Make) -> None:
    rig = make(Case("dp", rounds=6, deadline=6.0)).start()
    over = threading.Event()

    def breaks() -> None:
        while not over.wait(0.25):
            rig.lines[BAD].reset()

    thread = threading.Thread(target=breaks)
    thread.start()
    try:
        records = rig.run(lambda _: time.sleep(0.1))
    finally:
        over.set()
        thread.join()
    assert all(names <= {BAD} for names in dropped(records))
    assert handled_once(rig)


def test_all_clients_fail(make: Make) -> None:
    rig = make(DP).start()

    def fails(task: ProtocolMessage, answer: Callable[[], bytes]) -> bytes:
        if at("train", 1)(task):
            for name in rig.case.names:  # at every site before it answers: no answer is quicker than the cut
                rig.cut(name)
        return answer()

    rig.hooks.update(dict.fromkeys(rig.case.names, fails))
    records = rig.run()
    assert [record["status"] for record in records] == ["skipped"] * 3
    assert all(set(record["dropped"]) == set(rig.case.names) for record in records)
    assert rig.journal is not None
    assert rig.journal.status == "failed"
