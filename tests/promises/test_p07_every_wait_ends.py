"""P7. Every wait ends: each has a budget on the monotonic clock, and nothing that others do can make it longer."""

import ast
from pathlib import Path

import pytest
from tests.promises.fleet import DEADLINE, Case
from tests.promises.scenes import calm

import consilia


@pytest.mark.parametrize("mode", ["clear", "masks"])
def test_a_run_whose_sites_say_nothing_ends_in_its_time(mode: str, place: Path, shelf: Path) -> None:
    world = calm(Case(mode), place, shelf, {"drop": 1.0}).run()
    assert world.oracle.statuses == ["skipped"] * 3
    exchanges = world.network.exchanges
    assert world.network.now == pytest.approx(exchanges * DEADLINE)
    assert exchanges <= 3 * 1 + 2  # each round asks once in vain; then the result is scored and the end is told


def test_rounds_wait_by_the_transport_alone() -> None:
    """What asks sites has no wait of its own: no thread to join, no queue to get from, no sleep."""
    found = []
    for path in sorted((Path(consilia.__file__).parent / "rounds").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                bare = node.func.attr in ("wait", "join", "result", "acquire") and not (node.args or node.keywords)
                if bare or node.func.attr == "sleep":
                    found.append(f"{path.name}:{node.lineno}")
    assert found == []
