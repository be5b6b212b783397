"""Faults on demand do what their schedule says, both ways, and the same every time."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from consilia.core.errors import PlanError
from consilia.core.update import Gone
from consilia.rounds.ports import Arrival
from consilia.transport.faults import Direction, Fault, Faulty, Rates, Schedule, corrupted, seeded
from consilia.transport.inprocess import InProcess

SITES = ("a", "b", "c")


class Time:
    """Seconds that pass only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def only(direction: Direction, site: str, number: int, fault: Fault) -> Schedule:
    return lambda *frame: fault if frame == (direction, site, number) else None


class Lane:
    """Three sites that note what they hear, behind a faulty transport."""

    def __init__(self, schedule: Schedule) -> None:
        self.heard: list[bytes] = []
        self.time = Time()
        inner = InProcess({site: self.answer(site) for site in SITES}, self.time)
        self.transport = Faulty(inner, schedule, self.time, self.time.sleep)

    def answer(self, site: str) -> Callable[[bytes], bytes]:
        def handle(frame: bytes) -> bytes:
            self.heard.append(frame)
            return b"re " + frame

        return handle

    def exchange(self, number: int, timeout: float = 10.0) -> list[bytes]:
        for site in SITES:
            self.transport.send(site, f"{site}{number}".encode())
        return [bytes(event.frame) for event in arrivals(self.transport.events(timeout))]


def arrivals(events: Iterator[Arrival | Gone]) -> Iterator[Arrival]:
    for event in events:
        assert isinstance(event, Arrival), event
        yield event


def test_without_faults_nothing_changes() -> None:
    lane = Lane(seeded(1, Rates()))
    assert lane.exchange(1) == [b"re a1", b"re b1", b"re c1"]
    assert lane.exchange(2) == [b"re a2", b"re b2", b"re c2"]


def test_a_task_that_is_dropped_is_never_heard() -> None:
    lane = Lane(only("down", "b", 1, Fault("drop")))
    assert lane.exchange(1) == [b"re a1", b"re c1"]
    assert lane.exchange(2) == [b"re a2", b"re b2", b"re c2"]
    assert b"b1" not in lane.heard


def test_an_answer_that_is_dropped_was_computed() -> None:
    lane = Lane(only("up", "b", 1, Fault("drop")))
    assert lane.exchange(1) == [b"re a1", b"re c1"]
    assert b"b1" in lane.heard


def test_a_late_answer_comes_in_the_next_exchange() -> None:
    lane = Lane(only("up", "b", 1, Fault("delay", after=3)))
    assert lane.exchange(1) == [b"re a1", b"re c1"]
    assert lane.exchange(2) == [b"re b1", b"re a2", b"re b2", b"re c2"]


def test_a_late_task_is_answered_in_the_same_exchange_if_others_still_come() -> None:
    lane = Lane(only("down", "a", 1, Fault("delay", after=2)))
    assert lane.exchange(1) == [b"re b1", b"re c1", b"re a1"]


def test_a_task_that_waits_for_time_comes_before_the_deadline_or_after_it() -> None:
    lane = Lane(only("down", "a", 1, Fault("delay", seconds=4.0)))
    assert lane.exchange(1) == [b"re b1", b"re c1", b"re a1"]
    assert lane.time.now == 4.0
    lane = Lane(only("up", "a", 1, Fault("delay", seconds=4.0)))
    assert lane.exchange(1, timeout=2.0) == [b"re b1", b"re c1"]
    assert lane.time.now == 0.0  # nothing else was to come: nobody waited
    lane.time.sleep(4.0)
    assert lane.exchange(2) == [b"re a1", b"re a2", b"re b2", b"re c2"]


def test_a_repeated_task_is_answered_twice_and_a_repeated_answer_comes_twice() -> None:
    lane = Lane(only("down", "c", 1, Fault("repeat", after=1)))
    assert sorted(lane.exchange(1)) == [b"re a1", b"re b1", b"re c1", b"re c1"]
    lane = Lane(only("up", "a", 1, Fault("repeat", after=2)))
    assert lane.exchange(1) == [b"re a1", b"re b1", b"re c1", b"re a1"]


def test_reordered_answers_change_places() -> None:
    lane = Lane(only("up", "b", 1, Fault("reorder")))
    assert lane.exchange(1) == [b"re a1", b"re c1"]
    assert lane.exchange(2) == [b"re a2", b"re b2", b"re b1", b"re c2"]


def test_what_waits_behind_a_lost_frame_comes_behind_the_one_after() -> None:
    faults = {("up", "b", 1): Fault("reorder"), ("up", "b", 2): Fault("drop")}
    lane = Lane(lambda *frame: faults.get(frame))
    assert lane.exchange(1) == [b"re a1", b"re c1"]
    assert lane.exchange(2) == [b"re a2", b"re c2"]
    assert lane.exchange(3) == [b"re a3", b"re b3", b"re b1", b"re c3"]


def test_corrupted_bytes_differ_as_said() -> None:
    frame = memoryview(bytes(range(100)))
    assert corrupted(frame, Fault("cut", place=0.25)) == bytes(range(25))
    assert corrupted(frame, Fault("append"))[:100] == frame
    assert len(corrupted(frame, Fault("append"))) > 100
    flipped = corrupted(frame, Fault("flip", place=0.99))
    assert [place for place in range(100) if flipped[place] != frame[place]] == [99]
    assert corrupted(b"", Fault("flip")) == b""
    lane = Lane(only("down", "a", 1, Fault("cut", place=0.5)))
    assert lane.exchange(1)[0] == b"re a"


def test_the_seed_decides_whatever_the_order_of_asking() -> None:
    schedule, rates = seeded(7, Rates(0.02, 0.02, 0.02, 0.02, 0.02)), Rates(0.02, 0.02, 0.02, 0.02, 0.02)
    keys = [(way, site, number) for way in ("down", "up") for site in SITES for number in range(1, 1001)]
    drawn = {key: schedule(*key) for key in keys}  # type: ignore[arg-type]
    again = seeded(7, rates)
    assert all(again(*key) == drawn[key] for key in reversed(keys))  # type: ignore[arg-type]
    assert {key: seeded(8, rates)(*key) for key in keys[:200]} != {key: drawn[key] for key in keys[:200]}  # type: ignore[arg-type]
    kinds = Counter(fault.kind for fault in drawn.values() if fault is not None)
    # 6,000 frames at 2 % each: 120 expected, four deviations are 43; corruption is shared out among its three kinds.
    for kind in ("drop", "delay", "repeat", "reorder"):
        assert abs(kinds[kind] - 120) < 45
    assert abs(kinds["flip"] + kinds["cut"] + kinds["append"] - 120) < 45
    assert min(kinds["flip"], kinds["cut"], kinds["append"]) > 10


@pytest.mark.parametrize("rates", [(0.5, 0.6), (-0.1,), (float("nan"),)])
def test_rates_that_are_none_are_refused(rates: tuple[float, ...]) -> None:
    with pytest.raises(PlanError, match="the rates of a rehearsal needs probabilities"):
        Rates(*rates)


def test_a_thousand_frames_at_half_a_fault_each_come_to_an_end() -> None:
    lane = Lane(seeded(3, Rates(0.1, 0.1, 0.1, 0.1, 0.1)))
    for number in range(200):
        lane.exchange(number)
    heard = Counter(lane.heard)
    assert 300 < len([frame for frame in heard if len(frame) > 1]) < 660
    assert max(heard.values()) > 1
