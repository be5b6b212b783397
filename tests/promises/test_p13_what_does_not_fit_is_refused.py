"""P13. Another version, another shape or another plan is refused before a round, with both values named."""

from pathlib import Path

import pytest
from tests.promises.values import require_dropped, require_refused


@pytest.mark.parametrize("what", ["version", "length", "plan", "run"])
def test_a_task_that_does_not_fit_computes_nothing(what: str, place: Path, shelf: Path) -> None:
    require_refused(what, place, shelf)


def test_an_update_of_another_length_is_not_added() -> None:
    require_dropped()
