"""Fixtures: folders in memory. These tests cut processes, not the power: what is committed there stays, as on a disk."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108  (a file system in memory, when the system has one)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    if not MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="consilia-test-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where empty stores are kept to be copied."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture
def quiet() -> Iterator[None]:
    """Thousands of refusals are what is asked for; what runs after these tests may speak again."""
    log = logging.getLogger("consilia.site")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)
