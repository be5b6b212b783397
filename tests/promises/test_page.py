"""docs/promises.md names every promise, and tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (P\d+) \| .* \| (`.*`) \|$", PAGE, re.MULTILINE))


def test_all_fourteen_have_a_row() -> None:
    assert list(ROWS) == [f"P{number}" for number in range(1, 15)]


@pytest.mark.parametrize("promise", ROWS)
def test_a_row_names_tests_that_exist(promise: str) -> None:
    named = re.findall(r"`([^`]+)`", ROWS[promise])
    assert f"test_p{int(promise[1:]):02}_" in named[0]
    for one in named:
        path, _, name = one.partition("::")
        body = ast.parse((ROOT / path).read_text()).body
        tests = {node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
        assert tests, f"{path} has no tests"
        assert not name or name in tests, one


def test_other_tests_that_the_page_speaks_of_exist() -> None:
    for path in re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path
