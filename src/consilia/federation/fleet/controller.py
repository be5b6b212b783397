"""What an NVFlare server loads: the coordinator of one run, which is one job."""

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from consilia.core.errors import ConsiliaError
from consilia.federation.fleet.member import FRAME, PLAN, TOPIC, folder_of
from consilia.federation.fleet.run import Aborted, run_job
from consilia.federation.naming import new_run
from consilia.federation.site_process import member
from consilia.plan.load import from_json
from consilia.transport.calls import Calls

_log = logging.getLogger("consilia.fleet")
_KNOCK = 2.0  # seconds that a client has to say that it is there


class FleetController(Controller):  # type: ignore[misc]  # NVFlare tells no types
    """Conducts a run from the server's job process.

    Args:
        clients: Site, as roster and plan call it -> client, as NVFlare calls it.
        seconds: How long sites may take to agree.
    """

    def __init__(self, clients: Mapping[str, str], seconds: float) -> None:
        super().__init__()
        self._clients = dict(clients)
        self._seconds = seconds

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to begin."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to end."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Nothing was asked by task."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the job's plan; its folder is the job's result."""
        try:
            self._run(abort_signal, fl_ctx)
        except Aborted:
            _log.warning("the job was aborted; what was charged stays charged")
        except ConsiliaError as error:
            _log.error("%s", error)
            self.system_panic(str(error), fl_ctx)

    def _run(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
        workspace = engine.get_workspace()
        plan = from_json(json.loads((Path(workspace.get_app_config_dir(job)) / PLAN).read_text(encoding="utf-8")))
        credentials = member(folder_of(workspace.get_site_config_dir()), "coordinator")

        def call(site: str, frame: bytes, seconds: float) -> bytes | None:
            request = Shareable()
            request[FRAME] = frame
            client = self._clients[site]
            try:
                replies = engine.send_aux_request([client], TOPIC, request, seconds, engine.new_context())
            except Exception as error:  # whatever NVFlare raises where a client is gone
                _log.warning("site %s could not be asked (%s)", site, type(error).__name__)
                return None
            return _frame(replies.get(client) if isinstance(replies, dict) else None)

        here: set[str] = (
            set()
        )  # clients whose part of the job has begun; NVFlare itself tells of their other processes only

        def connected() -> list[str]:
            missing = [client for client in self._clients.values() if client not in here]
            if missing:
                replies = engine.send_aux_request(
                    missing, TOPIC, Shareable(), _KNOCK, engine.new_context(), optional=True
                )
                here.update(client for client, reply in replies.items() if _is_ok(reply))
            return [site for site, client in self._clients.items() if client in here]

        result = run_job(
            plan, new_run(plan), Calls(self._clients, call, time.monotonic), connected, credentials,
            Path(workspace.get_run_dir(job)) / "consilia", seconds=self._seconds, aborted=lambda: bool(abort_signal.triggered),
        )  # fmt: skip
        _log.info("run ended: %s", json.dumps(result.summary))
        if result.summary["status"] == "failed":
            self.system_panic(str(result.summary["reason"]), fl_ctx)


def _is_ok(reply: Any) -> bool:
    return isinstance(reply, Shareable) and reply.get_return_code() == ReturnCode.OK


def _frame(reply: Any) -> bytes | None:
    if not _is_ok(reply):
        return None
    frame = reply.get(FRAME)
    return frame if isinstance(frame, bytes) else None
