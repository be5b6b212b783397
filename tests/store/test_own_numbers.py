"""A site's own numbers lie in a file that only its owner may read."""

import json
import stat
from pathlib import Path

import pytest

from consilia.core.errors import StoreError
from consilia.store.own_numbers import OwnNumbers


def test_lines_are_appended_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a-own.jsonl"
    for number in (1, 2):
        OwnNumbers(path).note({"round": number, "accuracy": None})
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [1, 2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="room and permission"):
        OwnNumbers(tmp_path / "missing" / "own.jsonl").note({})
