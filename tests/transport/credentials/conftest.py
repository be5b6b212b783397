import shutil
from pathlib import Path

import pytest
from tests.transport.credentials.world import World


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A consortium's folders, made once: every file of it is flushed to the disk, which takes a while."""
    return World.made(tmp_path_factory.mktemp("pattern")).folder


@pytest.fixture
def world(tmp_path: Path, pattern: Path) -> World:
    """A consortium of a coordinator, two sites and an operator, all with the roster."""
    shutil.copytree(pattern, tmp_path, dirs_exist_ok=True)
    return World(tmp_path)
