"""Pages that a script writes are those that the script would write today."""

from pathlib import Path

import pytest
from docs.make import cli_reference, plan_reference

from consilia.core import errors
from consilia.rounds.records import RoundRecord

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


@pytest.mark.parametrize("script", [cli_reference, plan_reference], ids=["cli", "plan"])
def test_page_is_up_to_date(script) -> None:  # type: ignore[no-untyped-def]
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), f"run: python {script.__file__}"


def test_every_field_of_a_record_is_described() -> None:
    page = (REFERENCE / "records.md").read_text(encoding="utf-8")
    assert [name for name in RoundRecord(1).to_json() if f"`{name}`" not in page] == []


def test_every_error_and_exit_code_is_described() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ConsiliaError)]
    assert [kind.__name__ for kind in kinds if f"| {kind.exit_code} | `{kind.__name__}`" not in page] == []
