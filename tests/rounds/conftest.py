"""Fixtures: a bench that closes its stores, and ledgers that stay in the test's folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.rounds.bench import Bench, Tamper

from consilia.crypto.attestation.attester import Attester
from consilia.plan.schema import Plan


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(plan: Plan, tamper: Tamper | None = None, run: str = "bench", attester: Attester | None = None) -> Bench:
        made.append(Bench(plan, tmp_path, tamper, run, attester))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
