"""What the components of both ends share: where their member's folder is, and what a message is called."""

from pathlib import Path

TOPIC = "consilia.frame"
FRAME = "frame"
PLAN = "plan.json"  # beside the job's own configuration
FOLDER = "consilia"  # in the folder `local` of a member's start-up kit, which no job can write to


def folder_of(local: str) -> Path:
    """Return the member's folder: its keys and, at a site, site.toml and policy.toml."""
    return Path(local) / FOLDER
