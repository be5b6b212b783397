"""Fixtures for every suite."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534


@pytest.fixture(autouse=True)
def _drawn_anew() -> None:
    """What a test draws from torch's generator does not depend on which tests ran before it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[Path]:
    """A folder, and a process that file permissions bind: the superuser steps down to nobody while the test runs."""
    if os.geteuid() != 0:
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="consilia-test-"))  # outside pytest's own folder, which nobody may enter
    os.chown(folder, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(0)
        shutil.rmtree(folder)
