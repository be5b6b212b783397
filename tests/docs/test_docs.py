"""README and docs must not rot: what they show is run, and what they print is compared."""

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.docs.blocks import Block, blocks, commands

from consilia.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
_CHECKER = doctest.OutputChecker()
_RULES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_RECIPE = re.compile(r"^run: .*\n\t\$\(BIN\)/(.*)$", re.MULTILINE)
_RUN_ID = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{6}\b")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_BAR = re.compile("[\u2501\u2578\u257a]+")
_NUMBER = re.compile(r"\d+(?:[.,\u202f]\d+)*(?:e-?\d+)?")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def plain(text: str, *, noisy: bool) -> str:
    """Take out what differs between two runs of one command."""
    text = _HASH.sub("HASH", _RUN_ID.sub("-ID", text))
    return _NUMBER.sub("#", _BAR.sub("", text)) if noisy else text


def same(expected: str, got: str, *, noisy: bool) -> bool:
    return _CHECKER.check_output(plain(expected, noisy=noisy), plain(got, noisy=noisy), _RULES)


class Reader:
    """Somebody who does all that a page says, in a folder of their own."""

    def __init__(self, page: Path) -> None:
        self.page = page
        self.scope: dict[str, object] = {"__name__": "page"}
        self.printed = ""
        self.code = 0

    def do(self, block: Block) -> None:
        noisy = block.note.startswith("noisy")
        if block.note.startswith("not run"):
            return
        if block.note.startswith("file: "):
            Path(block.note.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        elif block.note.endswith("output"):
            self.compare(block.line, block.text, self.printed, noisy=noisy)
        elif block.language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block.text, f"{name(self.page)}:{block.line}", "exec"), self.scope)  # noqa: S102
            self.printed = out.getvalue()
        elif block.language == "console":
            for command in commands(block):
                if command.text == "echo $?":
                    self.compare(command.line, command.expected, f"{self.code}\n", noisy=False)
                    self.code = 0
                    continue
                self.require_success(command.line)
                self.compare(command.line, command.expected, self.run(command.text), noisy=noisy)
            self.require_success(block.line)

    def require_success(self, line: int) -> None:
        assert self.code == 0, f"{name(self.page)}:{line}: the command before ended with {self.code}"

    def run(self, command: str) -> str:
        """Run a command; return stdout, or where it fails stderr too."""
        said = ""
        if command == "make run":  # its recipe, which make tells; not the installation before it
            command = _RECIPE.search((ROOT / "Makefile").read_text(encoding="utf-8"))[1]  # type: ignore[index]
            said = f".venv/bin/{command}\n"
        first, _, rest = command.removeprefix("PYTHONPATH=. ").partition(" | ")  # the folder is on this process's path
        if not first.startswith("consilia ") or any(mark in first for mark in "<>&;$*"):
            return self.shell(command)
        words = shlex.split(first)
        out, err = io.StringIO(), io.StringIO()  # in this process: torch is imported once
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.code = main(words[1:])
        if rest and not self.code:
            return self.shell(rest, out.getvalue())
        return said + out.getvalue() + (err.getvalue() if self.code else "")

    def shell(self, command: str, given: str = "") -> str:
        done = subprocess.run(
            ["bash", "-c", command], input=given, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.code = done.returncode
        return done.stdout + (done.stderr if self.code else "")

    def compare(self, line: int, expected: str, got: str, *, noisy: bool) -> None:
        where = f"{name(self.page)}:{line}"
        assert same(expected, got, noisy=noisy), f"{where} shows\n{expected}\nbut it printed\n{got}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder with the examples, as a clone has them, and ledgers of its own."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / ".consilia"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    torch.set_num_threads(1)
    yield tmp_path
    for pid in (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []:
        with contextlib.suppress(ProcessLookupError):  # what a page starts it stops, but a page may fail half way
            os.kill(int(pid), signal.SIGKILL)
    for module in [name for name in sys.modules if name.split(".")[0] in ("examples", "my_models")]:
        del sys.modules[module]  # another page has another folder


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_page_shows_runs(page: Path, folder: Path) -> None:
    reader = Reader(page)
    for block in blocks(page.read_text(encoding="utf-8")):
        reader.do(block)


_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the names a heading gets when rendered: lower case, no punctuation, hyphens for spaces."""
    text = page.read_text(encoding="utf-8")
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in _HEADING.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{name(page)} links to {target}"
        assert not anchor or anchor in anchors(found), f"{name(page)} links to {target}#{anchor}"


def test_every_page_can_be_found() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / target).resolve() for target, _ in _LINK.findall(index.read_text(encoding="utf-8"))}
    missing = [name(page) for page in PAGES if page.is_relative_to(index.parent) and page not in {*listed, index}]
    assert not missing


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs" / "images" / "first-result.png").stat().st_size < 200_000


@pytest.mark.parametrize(
    ("expected", "got", "noisy", "equal"),
    [
        ("epsilon 1.516\n", "epsilon 1.517\n", False, False),
        ("accuracy 79.8 %\n", "accuracy 81 %\n", True, True),
        ("accuracy 79.8 %\n", "loss 79.8 %\n", True, False),
        ("a\n...\nc\n", "a\nb\nc\n", False, True),
        ("a\n...\nc\n", "a\nb\n", False, False),
        ("runs/x-20250101-000000-abcdef\n", "runs/x-20260202-111111-123456\n", False, True),
    ],
)
def test_the_comparison_has_teeth(expected: str, got: str, *, noisy: bool, equal: bool) -> None:
    assert same(expected, got, noisy=noisy) is equal


def test_blocks_are_all_found() -> None:
    page = "<!-- file: a.txt -->\n```text\nx\n```\n\n```console\n$ one \\\n  two\nout\n$ three\n```\n"
    first, second = blocks(page)
    assert (first.note, first.text) == ("file: a.txt", "x\n")
    assert [(c.text, c.expected) for c in commands(second)] == [("one two", "out\n"), ("three", "")]
    with pytest.raises(ValueError, match="never closed"):
        list(blocks("```python\n1\n"))
