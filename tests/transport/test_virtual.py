"""A clock of its own: what comes when follows from the delays, and a late answer goes nowhere."""

from collections.abc import Callable
from itertools import islice

from consilia.core.update import Gone, ProtocolMessage
from consilia.core.wire import encode
from consilia.rounds.ports import Arrival
from consilia.transport.virtual import Virtual

DELAYS = {"a": 1.0, "b": 2.0, "c": 4.0}


def task(kind: str = "train", number: int = 1) -> bytes:
    return encode(ProtocolMessage(kind, "x", number))


def made(done: list[tuple[str, float]] | None = None) -> Virtual:
    log: list[tuple[str, float]] = [] if done is None else done

    def site(name: str) -> Callable[[bytes], bytes]:
        def answer(frame: bytes) -> bytes:
            log.append((name, transport.clock()))
            return name.encode()

        return answer

    transport = Virtual(
        {name: site(name) for name in DELAYS}, lambda site, kind: DELAYS[site] if kind == "train" else 0.5
    )
    return transport


def test_answers_come_in_the_order_of_the_delays() -> None:
    transport = made()
    for name in "cba":
        transport.send(name, task())
    assert [event.site for event in transport.events(10.0)] == ["a", "b", "c"]
    assert transport.clock() == 4.0


def test_a_site_does_one_task_after_another_and_kinds_take_their_own_time() -> None:
    done: list[tuple[str, float]] = []
    transport = made(done)
    for kind in ("train", "sum", "train"):
        transport.send("b", task(kind))
    transport.send("a", task("sum"))
    assert len(list(transport.events(10.0))) == 4
    assert done == [("a", 0.5), ("b", 2.0), ("b", 2.5), ("b", 4.5)]


def test_who_is_late_is_gone_does_its_work_and_says_nothing_later() -> None:
    done: list[tuple[str, float]] = []
    transport = made(done)
    transport.send("a", task())
    transport.send("c", task())
    assert list(transport.events(3.0)) == [Arrival("a", b"a"), Gone("c", "no answer before the deadline")]
    assert transport.clock() == 3.0
    transport.send("c", task("sum"))  # begun when the task before is done
    assert list(transport.events(3.0)) == [Arrival("c", b"c")]
    assert done == [("a", 1.0), ("c", 4.0), ("c", 4.5)]


def test_the_others_go_on_while_some_are_waited_for() -> None:
    transport = made()
    for name in "abc":
        transport.send(name, task())
    assert list(transport.events(10.0, of={"b"})) == [Arrival("a", b"a"), Arrival("b", b"b")]  # a came on the way
    assert list(islice(transport.events(10.0), 1)) == [Arrival("c", b"c")]
    assert list(transport.events(10.0)) == []
    assert transport.clock() == 4.0


def test_a_site_that_is_not_there_is_gone_at_once_and_bytes_that_are_no_task_are_for_the_site() -> None:
    transport = made()
    transport.send("x", task())
    transport.send("a", b"nonsense")
    assert list(transport.events(10.0)) == [Gone("x", "not connected"), Arrival("a", b"a")]
    assert transport.clock() == 0.5
