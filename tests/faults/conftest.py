"""Fixtures: one consortium for all tests, and rigs that are taken down."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.faults.rig import BEAT, Rig, members, rig
from tests.promises.fleet import Case
from tests.transport.credentials.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return members(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture
def make(tmp_path: Path, world: World, shelf: Path) -> Iterator[Callable[..., Rig]]:
    with ExitStack() as stack:

        def made(case: Case, heartbeat: float = BEAT) -> Rig:
            return stack.enter_context(rig(case, tmp_path, world, shelf, heartbeat))

        yield made
