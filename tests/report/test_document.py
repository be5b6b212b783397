"""Reading a run's folder: whatever is missing or foreign is one clear error."""

from pathlib import Path

import pytest

from consilia.core.errors import StoreError
from consilia.report.document import read
from consilia.store.journal import Journal


def test_no_folder_and_no_journal(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such folder"):
        read(tmp_path / "none")
    with pytest.raises(StoreError, match=r"a journal \(journal.sqlite\)"):
        read(tmp_path)


NESTED = "[" * 100_000
PLACES = '"data_folder": ".", "home": "."'
TEXTS = [
    "", "[]", "{}", '{"plan": {}}', NESTED, f'{{"plan": 5, "facts": {{"sites": [], "rounds": 1}}, {PLACES}}}',
    f'{{"plan": {{}}, "facts": {{}}, {PLACES}}}', f'{{"plan": {{}}, "facts": 5, {PLACES}}}',
    f'{{"plan": {{}}, "facts": {{"sites": [1], "rounds": 1}}, {PLACES}}}', '{"plan": {}, "facts": {"sites": [], "rounds": 1}}',
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_journal_of_another_version(tmp_path: Path, text: str) -> None:
    Journal.create(tmp_path / "journal.sqlite", run="r", plan_json=text, digest="d", state=[b"s"]).close()
    with pytest.raises(StoreError, match="another version of Consilia"):
        read(tmp_path)


def test_a_journal_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"not a database, but long enough to look at" * 30)
    with pytest.raises(StoreError):
        read(tmp_path)
