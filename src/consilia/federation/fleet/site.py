"""What an NVFlare client loads: a site that answers frames, by its own policy and from its own ledger."""

import logging
import threading
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from consilia.core.errors import ConsiliaError
from consilia.federation.config import SiteConfig, read_config
from consilia.federation.fleet.member import FRAME, TOPIC, folder_of
from consilia.federation.site_process import ledger_of, member, party_of
from consilia.federation.site_service import SiteService
from consilia.store.ledger_store import SiteStore

_log = logging.getLogger("consilia.fleet")


class FleetSite(Executor):  # type: ignore[misc]  # NVFlare tells no types
    """A site in an NVFlare client's job process. It is given no argument: what counts lies in the client's own folder.

    Guarantees:
        Those of `SiteService`. A job can only offer a plan: it brings no code, no policy and no path.
    """

    def __init__(self) -> None:
        super().__init__()
        self._store: SiteStore | None = None
        self._service: SiteService | None = None
        self._one_at_a_time = threading.Lock()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Open the site's ledger when a job begins and close it when it ends."""
        if event_type == EventType.START_RUN:
            try:
                self._begin(fl_ctx.get_engine())
            except ConsiliaError as error:  # its words are for the site's own steward
                _log.error("this site cannot take part: %s", error)
                self.system_panic(f"the site cannot take part ({type(error).__name__})", fl_ctx)
        elif event_type == EventType.END_RUN:
            with self._one_at_a_time:
                self._service = None
                if self._store is not None:
                    self._store.close()

    def _begin(self, engine: Any) -> None:
        folder = folder_of(engine.get_workspace().get_site_config_dir())
        config, credentials = read_config(folder / "site.toml", SiteConfig), member(folder, "site")
        self._store = ledger_of(config, folder, credentials.name)
        self._service = SiteService(config, folder, self._store, lambda: party_of(credentials.refreshed()))
        engine.register_aux_message_handler(topic=TOPIC, message_handle_func=self._answer)

    def _answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        frame, reply = request.get(FRAME), make_reply(ReturnCode.OK)
        if frame is None:  # whether somebody is there
            return reply
        with self._one_at_a_time:
            if self._service is None or not isinstance(frame, bytes):
                return make_reply(ReturnCode.BAD_REQUEST_DATA)
            reply[FRAME] = self._service.handle(frame)
            return reply

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Refuse: frames come as messages, there are no tasks."""
        return make_reply(ReturnCode.TASK_UNKNOWN)
