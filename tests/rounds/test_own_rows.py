"""A real site's rows: what a plan must say before it reads any."""

from pathlib import Path

import pytest

from consilia.core.errors import PlanError
from consilia.plan.load import from_text
from consilia.rounds.rows import own_rows

SOURCES = {
    "npz": 'source = "npz"\npath = "rows.npz"\n',
    "idx": 'source = "idx"\npath = "rows"\nlabels_path = "labels"\n',
}


@pytest.mark.parametrize("source", SOURCES)
def test_names_of_classes_are_the_plans_and_not_read_off_the_rows(tmp_path: Path, source: str) -> None:
    plan = from_text(
        f'[run]\nname = "own"\n[data]\n{SOURCES[source]}[sites]\npartition = "natural"\n[training]\nbatch = "full"\n'
    )
    with pytest.raises(PlanError) as error:
        own_rows(plan, "a", tmp_path / "none")  # there is no file: nothing was opened
    assert [problem.who for problem in error.value.problems] == ["plan key data.classes"]
