"""A plan with one site that trains in a moment, and tune files for it."""

from pathlib import Path
from typing import Any

import pytest

from consilia.plan.load import from_text
from consilia.plan.schema import Plan
from consilia.study import tune_file
from consilia.study.tune_file import TuneFile

PLAN = """
[run]
name = "tuned"
[data]
source = "heart"
split = "exact"
[sites]
partition = "iid"
count = 1
counts = "public"
population = "ward"
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 2
server_learning_rate = 0.5
[privacy]
unit = "record"
against = "world"
epsilon = 2.0
delta = 1e-4
delta_reason = "a test"
clip_norm = 1.0
[evaluation]
metrics = "public"
"""


def plan(*overrides: str) -> Plan:
    """The plan, with changes."""
    return from_text(PLAN, overrides)


def tuned(**changes: Any) -> TuneFile:
    """A tune file: four trials on average over two keys, one of which changes what a trial charges."""
    raw: dict[str, Any] = {
        "trials": 4,
        "search": {"training.rounds": [2, 3], "training.server_learning_rate": {"low": 0.1, "high": 2, "log": True}},
    }
    return tune_file.from_json({key: value for key, value in (raw | changes).items() if value is not None})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Folder of the sites' ledgers."""
    return tmp_path / "home"
