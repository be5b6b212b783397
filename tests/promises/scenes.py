"""Short scenes for the tests that name one promise each: a fleet in a folder, led or disturbed in one way."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tests.promises.chance import Chance
from tests.promises.fleet import Case
from tests.promises.matrix import CASES, Attempt
from tests.promises.world import World

from consilia.core.update import Gone, Release
from consilia.core.wire import decode, encode
from consilia.rounds.ports import Arrival, Transport


def calm(case: Case, place: Path, shelf: Path, rates: Mapping[str, float] | None = None, seed: int = 1) -> World:
    """Return a world in which nothing happens but what `rates` says."""
    return World(case, Chance(seed, rates=rates or {"drop": 0.0}), place / "run", shelf)


def killed(mode: str, actor: str, point: str, passage: int, place: Path) -> dict[str, object]:
    """Run processes and kill one with SIGKILL; return what came of it."""
    return Attempt(CASES[mode], place / f"{actor}-{point}").run(actor, point, passage)


class Touched:
    """A transport whose answers a test changes on their way."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.seen: list[Arrival] = []

    def send(self, site: str, frame: bytes) -> None:
        self._inner.send(site, frame)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        for event in self._inner.events(timeout, of):
            if isinstance(event, Arrival):
                self.seen.append(event)
                yield from self.changed(event)
            else:
                yield event

    def changed(self, arrival: Arrival) -> Iterator[Arrival]:
        yield arrival


def other_payload(frame: bytes) -> bytes:
    item = decode(frame, who="test")
    assert isinstance(item, Release)
    return encode(replace(item, payload=bytes(item.payload)[::-1]))
