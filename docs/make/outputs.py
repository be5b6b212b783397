"""Do what pages show, and write into them what is printed now, where that is no longer what they show.

python docs/make/outputs.py docs/howto/own-model.md ...
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.docs.blocks import blocks  # noqa: E402
from tests.docs.test_docs import Reader, same  # noqa: E402


class Writer(Reader):
    """A reader who corrects the page instead of complaining."""

    def __init__(self, page: Path) -> None:
        super().__init__(page)
        self.text = page.read_text(encoding="utf-8")

    def compare(self, line: int, expected: str, got: str, *, noisy: bool) -> None:
        """Replace what the page expects after `line`, a command or an opening fence."""
        if same(expected, got, noisy=noisy):
            return
        lines = self.text.splitlines(keepends=True)
        at = "".join(lines[:line])
        now = "".join(f"{row.rstrip()}\n" for row in got.strip("\n").splitlines())
        assert "".join(lines[line:]).startswith(expected), f"{self.page}:{line} is not where {expected!r} stands"
        # Keep the number of lines, so that the blocks still to come stand where they were found.
        self.text = at + _Later.mark(now, expected) + "".join(lines[line:])[len(expected) :]


class _Later:
    """Texts of another length wait for the end under a line of their own."""

    waiting: dict[str, str] = {}  # noqa: RUF012  (one process, one use)

    @classmethod
    def mark(cls, now: str, expected: str) -> str:
        key = f"\0{len(cls.waiting)}\n" + "\0\n" * (expected.count("\n") - 1)
        cls.waiting[key] = now
        return key

    @classmethod
    def settle(cls, text: str) -> str:
        for key, now in cls.waiting.items():
            text = text.replace(key, now)
        cls.waiting.clear()
        return text


def rewrite(page: Path) -> None:
    """Run a page in a fresh folder and save it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder) / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        os.chdir(folder)
        sys.path.insert(0, folder)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.environ |= {"COLUMNS": "100", "CONSILIA_HOME": f"{folder}/.consilia", "OMP_NUM_THREADS": "1", "PATH": path}
        writer = Writer(page)
        for block in blocks(writer.text):
            writer.do(block)
        page.write_text(_Later.settle(writer.text), encoding="utf-8")
        os.chdir(ROOT)
        sys.path.remove(folder)


if __name__ == "__main__":
    for name in [Path(argument).resolve() for argument in sys.argv[1:]]:
        rewrite(name)
        print(name)
