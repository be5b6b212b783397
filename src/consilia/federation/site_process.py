"""One site's process: its keys, its ledger, its policy, and a line to the coordinator."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from consilia.core.errors import PlanError, StoreError
from consilia.federation.audit import AuditLog
from consilia.federation.config import SiteConfig, read_config
from consilia.federation.site_service import SiteService
from consilia.plan.policy import Policy
from consilia.rounds.secure.sessions import Party
from consilia.store.ledger_store import SiteStore
from consilia.store.locks import FileLock
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.names import Role
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.link.courier import Courier
from consilia.transport.link.ports import Link
from consilia.transport.longpoll.client import LongPoll


def member(folder: Path, role: Role) -> Credentials:
    """Return the keys beside a config file.

    Raises:
        StoreError: If they cannot be used.
        PlanError: If they are another role's.
    """
    credentials = Credentials.load(folder)
    if credentials.role != role:
        raise PlanError.of(f"folder {folder}", needs=f"the keys of a member of role {role}", got=f"role {credentials.role}",
                           hint="Name the config file in that member's own folder")  # fmt: skip
    return credentials


def ledger_of(config: SiteConfig, folder: Path, name: str) -> SiteStore:
    """Open a site's ledger.

    Raises:
        StoreError: If it cannot be used.
    """
    return SiteStore.open(folder / config.home / "sites" / f"{name}.sqlite", name)


def party_of(credentials: Credentials) -> Party:
    """Return a site's keys, and whom it believes."""
    book = credentials.book
    return Party(credentials.identity, book.sites, credentials.consortium, book.coordinator.verifying)


@contextmanager
def open_service(path: Path) -> Iterator[tuple[SiteConfig, SiteStore, SiteService]]:
    """Open a site's ledger and what judges offers, beside the site's process or without it.

    Args:
        path: site.toml.

    Raises:
        PlanError: If the config has faults.
        StoreError: If keys or ledger cannot be used.
    """
    config, folder = read_config(path, SiteConfig), path.resolve().parent
    credentials = member(folder, "site")
    with ledger_of(config, folder, credentials.name) as store:
        yield config, store, SiteService(config, folder, store, partial(party_of, credentials))


def sole(path: Path, who: str) -> FileLock:
    """Return the lock of the one process that works in a folder; it ends with the process.

    Raises:
        StoreError: If another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = FileLock.take(path, who)
    if held is None:
        raise StoreError.of(who, needs=f"the folder {path.parent} for itself", got="another process that works in it",
                            hint="It is running already: look for its log, or end it")  # fmt: skip
    return held


class SiteProcess:
    """A site, ready to be run.

    Args:
        path: site.toml, beside the site's keys.

    Raises:
        PlanError: If the config or the policy has faults.
        StoreError: If keys or ledger cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.config = read_config(path, SiteConfig)
        self._folder = folder = path.resolve().parent
        self.credentials = member(folder, "site")
        Policy.read(folder / self.config.policy)
        home = folder / self.config.home
        self._alone = sole(home / "site.lock", f"site {self.credentials.name}")
        self.store = ledger_of(self.config, folder, self.credentials.name)
        self.service = SiteService(self.config, folder, self.store, self._party)
        self._courier = Courier(
            self.credentials.name, self._links(), self.store.inbox, self.service.handle, spool=home / "spool",
            leaves=AuditLog(home / "audit.jsonl").note, retry_cap=self.config.retry_cap_seconds, clock=time.monotonic,
        )  # fmt: skip

    def run(self, stop: threading.Event) -> None:
        """Take part until told to stop."""
        try:
            self._courier.run(stop)
        finally:
            self.store.close()
            self._alone.close()

    def _party(self) -> Party:
        self.credentials = self.credentials.refreshed()
        return party_of(self.credentials)

    def _links(self) -> list[Link]:
        config = self.config
        links: list[Link] = [GrpcLink(config.coordinator, self.credentials)]
        if config.fallback is not None:
            trust = None if config.proxy_authority is None else self._folder / config.proxy_authority
            links.append(LongPoll(config.fallback, self.credentials, proxy=config.proxy, trust=trust))
        return links
