"""Help and version come at once: nothing heavy is imported for them."""

import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "numpy", "scipy", "sqlalchemy", "pydantic", "matplotlib", "dp_accounting", "safetensors")
ASK = """
import sys
from consilia.cli.main import main
code = main({arguments!r})
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["ledger", "--help"]])
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(arguments=arguments)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout
    # typer itself asks pydantic about the options of a single command
    allowed = set() if arguments[0].startswith("--") else {"pydantic"}
    assert set(HEAVY) & set(done.stderr.split()) <= allowed


def test_help_costs_little_beside_a_bare_typer_program() -> None:
    def seconds(code: str) -> float:
        def once() -> float:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
            return time.perf_counter() - began

        return min(once() for _ in range(4))

    bare = seconds("import typer, typer.rich_utils, rich.table, rich.panel")
    assert seconds(ASK.format(arguments=["--help"])) < 3 * bare


def test_help_names_every_command_and_the_exit_codes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(arguments=["--help"])],
        capture_output=True, text=True, timeout=60, check=True, env={"COLUMNS": "80", "PATH": ""},
    )  # fmt: skip
    names = (
        "run",
        "check",
        "tune",
        "study",
        "init",
        "schema",
        "account",
        "calibrate",
        "ledger",
        "roster",
        "report",
        "export",
    )
    for command in names:
        assert f" {command} " in done.stdout
    assert "130 interrupted" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
