"""The coordinator's process: its keys, its store, the lines that sites and operators come in by, and its status."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from consilia.core.errors import StoreError, TransportError
from consilia.federation.config import CoordinatorConfig, Rehearsal, read_config
from consilia.federation.control import Control
from consilia.federation.coordinator_service import CoordinatorService
from consilia.federation.metrics import Figures, registry_of
from consilia.federation.site_process import member, sole
from consilia.federation.status_server import StatusServer
from consilia.rounds.ports import Transport
from consilia.transport.faults import Faulty, Rates, seeded
from consilia.transport.grpc.server import GrpcServer
from consilia.transport.link.hub import Hub
from consilia.transport.longpoll.server import LongPollServer

_log = logging.getLogger("consilia.coordinator")
STORE = "coordinator.sqlite"
_LOOK = 5.0  # seconds between looks at the roster's file


class CoordinatorProcess:
    """A coordinator that listens; `run` works through its runs.

    Args:
        path: coordinator.toml, beside the coordinator's keys.
        ended: Called with the folder of a run that ended.

    Raises:
        PlanError: If the config has faults.
        StoreError: If keys or store cannot be used.
        TransportError: If it cannot listen.
    """

    def __init__(self, path: Path, ended: Callable[[Path], None]) -> None:
        self.config = config = read_config(path, CoordinatorConfig)
        folder = path.resolve().parent
        self.credentials = member(folder, "coordinator")
        home = folder / config.home
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open: list[Callable[[], None]] = [sole(home / "coordinator.lock", "the coordinator").close]
        try:
            self.hub = Hub(
                home / "spool", heartbeat=config.timing.heartbeat_seconds, upload_floor=config.timing.upload_floor_bytes,
                clock=time.monotonic, on_change=self._wake,
            )  # fmt: skip
            self._open.append(self.hub.close)
            self.service: CoordinatorService | None = None
            service = CoordinatorService(
                config.store or home / STORE, home, self.hub, roster=lambda: self.credentials.book.sites,
                signing=self.credentials.identity.signing, run_seconds=3600 * config.timing.run_hours,
                heartbeat=config.timing.heartbeat_seconds, ended=ended, rounds=rehearsed(self.hub, config.rehearsal),
            )  # fmt: skip
            self.service = service
            self._open.append(service.close)
            control = Control(service, self.hub.sites, lambda: self.credentials.book)
            self.server = GrpcServer(self.hub, self.credentials, config.listen, control.answer)
            self._open.append(self.server.close)
            self.fallback = None
            if config.fallback is not None:
                self.fallback = LongPollServer(self.hub, self.credentials, config.fallback, time.monotonic)
                self._open.append(self.fallback.close)
            figures = Figures(self.hub.sites, service.queue.all)
            self.status = StatusServer(config.status, control.status, registry_of(figures))
            self._open.append(self.status.close)
        except BaseException:
            self.close()
            raise

    def run(self, stop: threading.Event) -> None:
        """Work through the runs until told to stop; a newer roster in the folder counts from then on."""
        watch = threading.Thread(target=self._watch, args=(stop,), name="roster", daemon=True)
        watch.start()
        if self.service is not None:
            self.service.serve(stop)
        watch.join()

    def close(self) -> None:
        """Stop listening and let go of everything."""
        while self._open:
            self._open.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _watch(self, stop: threading.Event) -> None:
        complained, behind = "", False
        while not stop.wait(_LOOK):
            try:
                fresh = self.credentials.refreshed()
            except StoreError as error:
                if str(error) != complained:  # once, not at every look
                    complained = str(error)
                    _log.error("the roster in the folder is not taken: %s", error)
                continue
            if fresh is not self.credentials:
                self.credentials, behind = fresh, True
                if self.fallback is not None:
                    self.fallback.reload(fresh)
                _log.info("took version %d of the roster", fresh.book.version)
            if behind:
                try:
                    self.server.reload(fresh)
                    behind = False
                except TransportError as error:  # the port was taken: it is tried again at the next look
                    if str(error) != complained:
                        complained = str(error)
                        _log.error("%s", error)

    def _wake(self) -> None:
        if self.service is not None:
            self.service.wake()


def rehearsed(hub: Hub, rehearsal: Rehearsal | None) -> Transport:
    """Return what moves the messages of rounds: the hub, or the hub behind faults that were asked for.

    Raises:
        PlanError: If their chances add up to more than 1.
    """
    if rehearsal is None:
        return hub
    chances = rehearsal.model_dump(exclude={"seed"})
    return Faulty(hub, seeded(rehearsal.seed, Rates(**chances)), time.monotonic, time.sleep)
