"""One schedule from beginning to end: a coordinator and sites that are killed and started again until the run is over."""

from pathlib import Path

from tests.promises.chance import Chance
from tests.promises.fleet import Case, Fleet, entropy_for, with_stores
from tests.promises.network import KilledError, Network
from tests.promises.oracle import Oracle, ViolationError

from consilia.core.errors import ConsiliaError
from consilia.rounds.site import Site
from consilia.store import crash
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore

SITE_KILLS, COORDINATOR_KILLS = 6, 4  # at most, in one schedule: it has to come to an end


class _Places(str):
    """Stands where the crash points look up the place to die at, and asks the world instead."""

    __slots__ = ("world",)
    world: "World"

    def __ne__(self, place: object) -> bool:
        self.world.passing(str(place))
        return True

    __hash__ = str.__hash__


class World:
    """A run under a schedule.

    Args:
        case: The plan.
        chance: Decides what happens.
        folder: Of this run.
        shelf: Where empty stores are kept to be copied.
    """

    def __init__(self, case: Case, chance: Chance, folder: Path, shelf: Path) -> None:
        self.case = case
        self.chance = chance
        self.fleet = Fleet(case, with_stores(case, folder, shelf), entropy_for(case, chance.seed))
        self.oracle = Oracle(self.fleet)
        self.network = Network(chance, self.handle, self.oracle)
        self.sites: dict[str, tuple[Site, SiteStore]] = {}
        self.back: dict[str, float] = {}
        self.journal: Journal | None = None
        self._actor = ""
        self.places: set[str] = set()

    def run(self) -> "World":
        """Run the schedule and every check; raises `oracle.ViolationError`."""
        places = _Places("somewhere")
        places.world = self
        before, crash._target = crash._target, places
        try:
            for name in self.case.names:
                self._start(name)
            while not self._live():
                self.network.coordinator_died()
                self.network.now += self.chance.between(0, 30)
            self.oracle.ended(self.network.now)
        finally:
            crash._target = before
            self._close()
        return self

    def passing(self, place: str) -> None:
        """A process comes by a place where it may be killed."""
        self.places.add(place)
        site = self._actor != "coordinator"
        fault, most = ("kill site", SITE_KILLS) if site else ("kill coordinator", COORDINATOR_KILLS)
        if self._actor and self.chance.happens(fault, f"{self._actor} at {place}", most=most):
            raise KilledError(place)

    def handle(self, name: str, frame: bytes) -> bytes | None:
        """Let a site answer; None if it is down, or is killed before it has."""
        if self.network.now < self.back.get(name, 0.0):
            return None
        if name not in self.sites and not self._start(name):
            return None
        actor, self._actor = self._actor, name
        try:
            return self.sites[name][0].handle(frame)
        except KilledError:
            self._killed(name)
            return None
        finally:
            self._actor = actor

    def _start(self, name: str) -> bool:
        actor, self._actor = self._actor, name
        try:
            self.sites[name] = self.fleet.open_site(name)
        except KilledError:
            self._killed(name)
            return False
        finally:
            self._actor = actor
        self.oracle.started(name, self.sites[name][0])
        return True

    def _killed(self, name: str) -> None:
        self.oracle.hurt(name)
        self.back[name] = self.network.now + self.chance.between(0, 15)
        if name in self.sites:
            self.sites.pop(name)[1].close()

    def _live(self) -> bool:
        """Let a coordinator live; return whether the run came to its end."""
        self._actor = "coordinator"
        try:
            self.journal = self.fleet.open_journal()
            if self.journal.status != "running":
                return True
            coordinator = self.fleet.coordinator(self.journal, self.network, self.network.clock)
            coordinator.train()
            self.fleet.finish(coordinator, self.journal)
            return True
        except KilledError:
            self.oracle.coordinator_killed()
            return False
        except ConsiliaError as error:
            raise ViolationError("P6", f"the run ended by itself: {error}") from error
        finally:
            self._actor = ""
            if self.journal is not None:
                self.journal.close()
            self.journal = None

    def _close(self) -> None:
        self.oracle.close()
        for _, store in self.sites.values():
            store.close()
