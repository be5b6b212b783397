"""What a run is called."""

import secrets
import time

from consilia.plan.schema import Plan


def new_run(plan: Plan) -> str:
    """Return a fresh id that begins with the plan's name."""
    return f"{plan.run.name.replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
