"""Stores to test on: a file of one run, a file of many, and a database of a real PostgreSQL server."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.cluster import Cluster, programs, running

KINDS = ("file", "shared file", "server")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if programs() is None and os.environ.get("CI") != "true":
        pytest.skip("no PostgreSQL is installed (Debian: apt-get install postgresql)")
    with running() as cluster:
        yield cluster


@pytest.fixture
def url(cluster: Cluster) -> Iterator[str]:
    """An empty database of the server; whatever is left connected to it is an error of the test."""
    name = cluster.database()
    yield cluster.url(name)
    end = time.monotonic() + 10.0  # a server under load notices late that a process was killed
    while (left := cluster.sessions(name)) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == []
    with cluster.sql() as connection:
        connection.execute(f"DROP DATABASE {name}")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """An empty store of each kind."""
    return _place(request, request.param, tmp_path)


@pytest.fixture(params=KINDS[1:])
def many(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """An empty store of many runs of each kind."""
    return _place(request, request.param, tmp_path)


def _place(request: pytest.FixtureRequest, kind: str, folder: Path) -> Path | str:
    if kind == "server":
        url: str = request.getfixturevalue("url")
        return url
    return folder / "runs" / "j.sqlite" if kind == "file" else f"sqlite:///{folder / 'store.sqlite'}"
