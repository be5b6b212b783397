"""What the two halves of a secure sum keep does not grow with the rounds behind them."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.rounds.bench import Bench
from tests.rounds.secure_bench import secret

from consilia.core.canonical import Json
from consilia.rounds.secure import written
from consilia.rounds.secure.written import Written
from consilia.secagg.transcript import Entry, first

BenchMaker = Callable[..., Bench]


def held(root: object) -> int:
    """Return the bytes of text, numbers and vectors that can be reached from an object without leaving this package."""
    found, seen, todo = 0, set(), [root]
    while todo:
        one: Any = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, bytes | str):
            found += len(one)
        elif isinstance(one, np.ndarray):
            found += one.nbytes
        elif isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset | deque):
            todo += one
        elif type(one).__module__.startswith("consilia.") and not type(one).__module__.startswith("consilia.store"):
            todo += [*getattr(one, "__dict__", {}).values()]
    return found


@pytest.mark.parametrize("mode", ["masks", "rlwe", "paillier"])
def test_what_both_halves_keep_is_that_of_a_few_rounds(
    mode: str, bench: BenchMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "AT_HAND", 2)
    one = bench(secret(mode, rounds=9))
    kept: list[list[int]] = []

    def look(record: dict[str, Json]) -> None:
        halves = [one.gatherer, *(site._sums for site in one.simulation.sites.values())]
        kept.append([held(halves[0]), max(held(half) for half in halves[1:])])  # with paillier one site opens a sum

    one.coordinator.train(look)
    # A site still remembers which sums it opened: 32 bytes for each of an update and its scores.
    assert all(late - early <= 5 * 2 * 32 + 400 for early, late in zip(kept[3], kept[8], strict=True)), kept
    assert min(kept[8]) > 500  # or nothing was looked at


def entries(count: int) -> list[Entry]:
    made: list[Entry] = []
    for number in range(1, count + 1):
        previous = made[-1].hash if made else first("run")
        made.append(Entry("run", number, "c", "m", {"north": "u"}, "t", "n", previous))
    return made


@pytest.mark.parametrize("place", [0, 3, 66, 68, 99, 100])
@pytest.mark.parametrize("begun", [0, 7, 100])
def test_whoever_lacks_entries_is_given_them_all(place: int, begun: int) -> None:
    disk = entries(100)
    log = Written("run", lambda: disk[:begun])
    for entry in disk[begun:]:
        log.add(entry)
    log._read = lambda: disk[:99]  # the last is not written down yet
    assert log.since(place) == disk[place:]
    assert (log.count, log.head) == (100, disk[-1].hash)


def test_a_transcript_begins_where_nothing_is_written_down() -> None:
    log = Written("run", list)
    assert (log.count, log.head, log.since(0)) == (0, first("run"), [])
