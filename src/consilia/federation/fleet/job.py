"""The folder of an NVFlare job: a plan and the names of two installed classes, and nothing else."""

import json
from collections.abc import Mapping
from pathlib import Path

from consilia.core.errors import StoreError
from consilia.federation.assemble import require_rules
from consilia.federation.fleet.member import PLAN
from consilia.plan.load import canonical
from consilia.plan.schema import Plan
from consilia.plan.travelling import travelling

SITE = "consilia.federation.fleet.site.FleetSite"
CONTROLLER = "consilia.federation.fleet.controller.FleetController"


def write_job(plan: Plan, clients: Mapping[str, str], place: Path, *, seconds: float = 3600.0) -> None:
    """Write a job for an operator to submit.

    Args:
        plan: The plan.
        clients: Site, as roster and plan call it -> client, as NVFlare calls it.
        place: The job's folder; fresh.
        seconds: How long sites may take to agree.

    Raises:
        PlanError: With every rule that the plan breaks.
        StoreError: If the folder exists or cannot be written.
    """
    require_rules(plan)
    files: dict[str, object] = {
        "meta.json": {
            "name": plan.run.name, "deploy_map": {"app": ["@ALL"]}, "min_clients": 1, "resource_spec": {},
            "mandatory_clients": [],
        },
        f"app/config/{PLAN}": canonical(travelling(plan)),
        "app/config/config_fed_server.json": {
            "format_version": 2, "components": [], "task_data_filters": [], "task_result_filters": [],
            "workflows": [{"id": "consilia", "path": CONTROLLER, "args": {"clients": dict(clients), "seconds": seconds}}],
        },
        "app/config/config_fed_client.json": {
            "format_version": 2, "components": [], "task_data_filters": [], "task_result_filters": [],
            "executors": [{"tasks": ["none"], "executor": {"path": SITE, "args": {}}}],
        },
    }  # fmt: skip
    try:
        (place / "app" / "config").mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError.of(f"job folder {place}", needs="a fresh folder that it may write", got=type(error).__name__,
                            hint="Name another") from None  # fmt: skip
