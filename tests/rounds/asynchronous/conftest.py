"""Fixture: stages that close what they opened."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rounds.asynchronous.stage import Stage

from consilia.plan.schema import Plan


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(plan: Plan, *rest: Any, folder: str = ".", **named: Any) -> Stage:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        made.append(Stage(plan, place, *rest, **named))
        return made[-1]

    yield make
    for one in made:
        one.close()
