"""A coordinator's whole service over whole sites in this process: queue, proposals, rounds and control, without a network."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from tests.federation.hospitals import services
from tests.transport.credentials.world import World

from consilia.federation.control import Control
from consilia.federation.coordinator_service import CoordinatorService
from consilia.federation.site_service import SiteService
from consilia.plan.load import canonical, from_text
from consilia.transport.inprocess import InProcess
from consilia.transport.link.hub import Seen


class Local(InProcess):
    """A hub whose sites are functions; those in `away` are not connected."""

    def __init__(self, sites: Mapping[str, SiteService]) -> None:
        super().__init__({name: site.handle for name, site in sites.items()}, time.monotonic)
        self.names = tuple(sites)
        self.away: set[str] = set()

    def sites(self) -> dict[str, Seen]:
        """Return who is there."""
        return {name: Seen(name not in self.away, 1.0, 1.0, {"up": 1}) for name in self.names}

    def give_up(self, reason: str) -> None:
        """Nothing is ever under way between two calls."""


class _UntilIdle(Event):
    """Set once no run is open."""

    def __init__(self, service: CoordinatorService) -> None:
        super().__init__()
        self._service = service

    def is_set(self) -> bool:
        return not self._service.queue.open()


class Consortium:
    """Everybody.

    Attributes:
        sites: Their services.
        hub: What connects them.
        home: The coordinator's folder.
        service: The coordinator's.
        control: What operators ask.
        ended: The folders of runs that were handed over.
        stop: What tells the service to end; no test does so by `work`.
    """

    def __init__(self, world: World, sites: Mapping[str, SiteService], seconds: float) -> None:
        self.sites, self.hub = sites, Local(sites)
        self.home = world.folder / "hub" / "home"
        self.home.mkdir(exist_ok=True)
        self.ended: list[Path] = []
        self.stop = Event()
        credentials = world.load("hub")
        self._olga = world.book.by_name["olga"]
        self.service = CoordinatorService(
            self.home / "coordinator.sqlite", self.home, self.hub, roster=lambda: credentials.book.sites,  # type: ignore[arg-type]
            signing=credentials.identity.signing, run_seconds=seconds, heartbeat=0.01, ended=self.ended.append,
        )  # fmt: skip
        self.control = Control(self.service, self.hub.sites, lambda: credentials.book)

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Ask as the operator does: what goes over the line is JSON both ways."""
        request = json.loads(json.dumps({"do": do, **request}))
        found: dict[str, Any] = json.loads(json.dumps(self.control.answer(self._olga, request)))  # type: ignore[arg-type]
        return found

    def submit(self, run: str, text: str) -> None:
        """Submit a plan."""
        assert self.ask("submit", run=run, plan=canonical(from_text(text))) == {"run": run}

    def work(self) -> None:
        """Work until no run is open."""
        self.service.serve(_UntilIdle(self.service))

    def run(self, run: str) -> dict[str, Any]:
        """Return where a run stands."""
        [found] = [one for one in self.ask("status")["runs"] if one["run"] == run]
        return dict(found)

    def ran(self, run: str, text: str) -> dict[str, Any]:
        """Submit a plan, work, and return where its run stands."""
        self.submit(run, text)
        self.work()
        return self.run(run)


@contextmanager
def consortium(world: World, names: tuple[str, ...], seconds: float = 60.0) -> Iterator[Consortium]:
    """Open everybody's service."""
    with services(world, names) as sites:
        everyone = Consortium(world, sites, seconds)
        try:
            yield everyone
        finally:
            everyone.service.close()
