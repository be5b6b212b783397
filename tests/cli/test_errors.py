"""How commands end when something is wrong: one document or readable blocks, the right exit code, never a traceback."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consilia import api
from consilia.cli import quantities
from consilia.core.errors import (
    BudgetExceeded,
    ConsiliaError,
    PlanError,
    Problem,
    ProtocolError,
    StoreError,
    TransportError,
)
from consilia.plan import load

Call = Callable[..., Any]


def test_missing_plan_is_one_document(call: Call) -> None:
    outcome = call("run", "nowhere.toml", "--json")
    assert outcome.code == 2
    assert [sorted(problem) for problem in outcome.problems] == [["got", "hint", "needs", "who"]]
    assert "nowhere.toml" in outcome.problems[0]["who"]


def test_every_problem_of_a_plan_at_once(call: Call, heart: str) -> None:
    changes = ("privacy.epsilon=-1", "training.rounds=0", "data.sorce=heart")
    outcome = call("check", heart, *(word for change in changes for word in ("--set", change)), "--json")
    assert outcome.code == 2
    told = str(outcome.problems)
    assert all(key in told for key in ("privacy.epsilon", "training.rounds", "sorce"))


def test_blocks_on_stderr_for_people(call: Call, heart: str) -> None:
    outcome = call("check", heart, "--set", "privacy.epsilon=-1", "--set", "training.rounds=0")
    assert (outcome.code, outcome.out) == (2, "")
    assert "2 problems" in outcome.err
    assert outcome.err.count("needs") == 2
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("run", "--nonsense"), "--nonsense"),
        (("account", "--steps", "many"), "--steps"),
        (("nonsense",), "nonsense"),
        (("run",), "neither"),
        (("run", "a.toml", "--resume", "b"), "both"),
        (("run", "--resume", "b", "--out", "c", "--seed", "3"), "--out and --set or --seed"),
        (("ledger", "verify", "--head", "abc"), "--site"),
        (("export", "somewhere", "--format", "pickle"), "pickle"),
    ],
)
def test_misuse_exits_2(call: Call, arguments: tuple[str, ...], word: str) -> None:
    outcome = call(*arguments, "--json")
    assert outcome.code == 2
    assert word in str(outcome.problems)
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("error", [PlanError, BudgetExceeded, ProtocolError, StoreError, TransportError])
@pytest.mark.parametrize("as_json", [False, True])
def test_exit_codes_follow_the_tree_of_errors(
    call: Call, heart: str, monkeypatch: pytest.MonkeyPatch, error: type[ConsiliaError], as_json: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error.of("somebody", needs="this [bold]", got="that", hint="Do so")

    monkeypatch.setattr(api, "run", fail)
    outcome = call("run", heart, *["--json"] * as_json)
    assert outcome.code == error.exit_code
    if as_json:
        assert outcome.problems == [{"who": "somebody", "needs": "this [bold]", "got": "that", "hint": "Do so"}]
    else:
        assert "this [bold]" in outcome.err  # data is never read as markup
        assert outcome.out == ""


def test_interruption_says_how_to_go_on(call: Call, heart: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(plan: object, out: Path, on_round: object, **_engine: object) -> None:
        out.mkdir()
        (out / "journal.sqlite").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "run", stop)
    outcome = call("run", heart, "--out", "mine")
    assert outcome.code == 130
    assert "consilia run --resume mine" in outcome.err
    assert "Traceback" not in outcome.err


def test_interruption_finds_the_folder_that_the_run_chose(
    call: Call, heart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("runs/old").mkdir(parents=True)
    Path("runs/old/journal.sqlite").touch()

    def stop(plan: object, out: None, on_round: object, **_engine: object) -> None:
        Path("runs/new").mkdir()
        Path("runs/new/journal.sqlite").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "run", stop)
    outcome = call("run", heart, "--json")
    assert outcome.code == 130
    assert outcome.problems[0]["hint"] == "Go on with: consilia run --resume runs/new"


def test_reader_that_goes_away(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import sys; from consilia.cli.main import main; sys.exit(main(['schema']))"],
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, cwd=tmp_path,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


DAMAGE = [
    ("run", "result", "garbage"), ("run", "result", "{}"), ("run", "plan", "[" * 100_000),
    ("run", "plan", '{"plan": {}, "facts": {"sites": [], "rounds": 3}, "data_folder": ".", "home": "."}'),
    ("records", "record", "garbage"), ("records", "record", "{}"), ("records", "record", '{"round": "x", "status": []}'),
    ("records", "charges", "[{}]"), ("entries", "body", "garbage"), ("entries", "body", "[" * 100_000),
    ("entries", "kind", b"\xff"), ("entries", "round", "x"),
]  # fmt: skip


def test_damaged_stores_end_every_command_with_one_error(call: Call, heart: str) -> None:
    short = ("--set", "training.rounds=2")
    assert call("run", heart, *short, "--out", "whole", "--json").code == 0
    for table, column, value in DAMAGE:
        copy, home = Path("copy"), Path(".consilia")
        for folder in (copy, Path("kept")):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree("whole", copy)
        shutil.copytree(home, "kept")
        path = next((home / "sites").glob("*.sqlite")) if table == "entries" else copy / "journal.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))  # noqa: S608
            if column == "charges":  # only a run that goes on reads them
                connection.execute("UPDATE run SET status = 'running', result = NULL")
        connection.close()
        commands = (
            (("ledger", "show"), ("ledger", "verify"))
            if table == "entries"
            else (("report", "copy"), ("export", "copy"), ("run", "--resume", "copy"))
        )
        codes = []
        for command in commands:
            outcome = call(*command, "--json")
            codes.append(outcome.code)
            assert outcome.code in (0, 5), (table, column, command)
            assert "Traceback" not in outcome.err
            if outcome.code:
                assert outcome.problems, (table, column, command)
        assert 5 in codes, (table, column)
        shutil.rmtree(home)
        shutil.move("kept", home)


@pytest.mark.parametrize("place", ["nowhere", "file", "empty"])
@pytest.mark.parametrize("command", ["show", "verify"])
def test_no_ledgers_is_no_success(call: Call, monkeypatch: pytest.MonkeyPatch, command: str, place: str) -> None:
    Path("file").mkdir()
    Path("file/sites").touch()
    Path("empty/sites").mkdir(parents=True)
    monkeypatch.setenv("CONSILIA_HOME", place)
    outcome = call("ledger", command, "--json")
    assert outcome.code == 5
    assert outcome.problems[0]["needs"] == f"ledgers in {place}/sites"


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (OSError(28, "No space left on device", "x"), 5, "No space left"),
        (FileNotFoundError(2, "No such file or directory"), 5, "No such file"),
        (MemoryError(), 1, "more memory"),
        (RecursionError("too deep"), 1, "nested less deeply"),
        (AttributeError("'int' has no attribute 'x'"), 1, "AttributeError: 'int' has no attribute 'x'"),
    ],
)
def test_whatever_else_happens_is_one_block(
    call: Call, heart: str, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, word: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(api, "run", fail)
    monkeypatch.delenv("CONSILIA_TRACEBACK", raising=False)
    outcome = call("run", heart, "--json")
    assert outcome.code == code
    assert word in str(outcome.problems[0].values())
    assert "CONSILIA_TRACEBACK=1" in outcome.problems[0]["hint"]
    outcome = call("run", heart)
    assert (outcome.code, outcome.out) == (code, "")
    assert "Traceback" not in outcome.err
    monkeypatch.setenv("CONSILIA_TRACEBACK", "1")
    with pytest.raises(type(error)):
        call("run", heart)


def test_paths_that_no_file_system_takes(call: Call, heart: str) -> None:
    outcome = call("run", heart, "--set", "training.rounds=1", "--out", "x" * 400, "--json")
    assert outcome.code == 5
    assert outcome.problems
    assert call("report", "x" * 400, "--json").code == 5
    assert call("check", "x" * 400, "--json").code == 2


def test_a_thousand_problems_are_cut_on_a_screen_and_whole_in_json(
    call: Call, heart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PlanError(Problem(f"row {number}", "a number", "x" * 5000, "Fix it") for number in range(1000))

    monkeypatch.setattr(api, "run", fail)
    outcome = call("run", heart)
    assert outcome.err.count("needs") == 20
    assert "and 980 more" in outcome.err
    assert len(outcome.err) < 20_000
    assert len(call("run", heart, "--json").problems) == 1000


@pytest.mark.parametrize("command", ["account", "run"])
def test_an_early_ctrl_c_is_one_document(call: Call, monkeypatch: pytest.MonkeyPatch, heart: str, command: str) -> None:
    def press(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quantities, "require", press)
    monkeypatch.setattr(load, "load", press)
    rest = (
        [heart]
        if command == "run"
        else ["--sampling-rate", "1", "--noise-multiplier", "1", "--steps", "1", "--delta", "1e-5"]
    )
    outcome = call(command, *rest, "--json")
    assert outcome.code == 130
    assert outcome.problems[0]["got"] == "an interruption"


def test_a_folder_that_was_deleted_under_the_shell(call: Call, heart: str) -> None:
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()
    assert call("check", heart, "--json").code == 5


@pytest.mark.parametrize("name", ["model.safetensors", "MODEL_CARD.md"])
def test_an_export_with_a_folder_in_its_way(call: Call, heart: str, name: str) -> None:
    call("run", heart, "--set", "training.rounds=1", "--out", "mine", "--json")
    (Path("mine/export") / name).mkdir(parents=True)
    outcome = call("export", "mine", "--json")
    assert outcome.code == 5
    assert outcome.problems[0]["needs"] == "to be writable"


def test_a_finished_run_on_a_read_only_disk_has_report_and_export(
    call: Call, heart: str, unprivileged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(unprivileged)
    call("run", heart, "--set", "training.rounds=1", "--out", "mine", "--json")
    Path("mine").chmod(0o500)
    try:
        refused = call("report", "mine", "--out", "mine/new.html", "--json")
        assert (refused.code, refused.problems[0]["got"]) == (5, "Permission denied")
        assert call("report", "mine", "--out", "page.html", "--json").document == {"report": "page.html"}
        assert Path("page.html").stat().st_size > 10_000
        assert call("export", "mine", "--out", "given", "--json").code == 0
    finally:
        Path("mine").chmod(0o700)
