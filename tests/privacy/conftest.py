"""Fixtures: a folder in memory where there is one, and labs that close their stores."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.privacy.lab import Lab

from consilia.plan.schema import Plan

_MEMORY = Path("/dev/shm")  # noqa: S108  (a file system in memory, when the system has one)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder whose commits are quick: these tests count charges, they do not cut the power."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="consilia-test-", dir=_MEMORY))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def lab(place: Path) -> Iterator[Callable[..., Lab]]:
    made: list[Lab] = []

    def make(plan: Plan, folder: str = "a", **more: Any) -> Lab:
        (place / folder).mkdir(exist_ok=True)
        made.append(Lab(plan, place / folder, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def _home(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSILIA_HOME", str(place / "home"))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
