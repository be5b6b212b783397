"""The Paillier benchmark in small: packing and short masks are seen, and their absence would be."""

import json
from typing import Any

import benchmarks.timing.paillier as timing
import pytest
from benchmarks.paillier import GOAL, page
from benchmarks.study import RESULTS, ROOT
from tests.crypto.paillier_run import real_key

from consilia.core.randomness import SecretRng
from consilia.crypto.paillier_base import FixedBase
from consilia.crypto.paillier_key import PaillierKey
from consilia.crypto.paillier_public import PaillierPublic


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def ready(bits: int, rng: SecretRng) -> PaillierKey:
        return real_key()

    monkeypatch.setattr(timing, "keypair", ready)


def test_a_small_comparison() -> None:
    found: Any = timing.compare(2048, 2_000, 2, 1)
    assert found["bytes_a_value"] < 6
    assert all(found[f"{step}_s"]["median"] > 0 for step in timing.STEPS)
    if "phe" in found:
        assert found["phe"]["encrypt_times"]["median"] > 300
        assert found["phe"]["sum_times"]["median"] > 300


def test_masks_without_a_table_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: FixedBase, exponent: bytes) -> int:
        return pow(public.n + 2, public.n, public.square)

    public: PaillierPublic = real_key().public
    quick = timing.packed(real_key(), 2_000)()
    monkeypatch.setattr(FixedBase, "power", slow)
    assert timing.packed(real_key(), 2_000)()["encrypt"] > 5 * quick["encrypt"]


def test_the_page_is_that_of_the_result_and_reaches_the_goal() -> None:
    result = json.loads((RESULTS / "paillier.json").read_text())
    assert (ROOT / "benchmarks" / "PAILLIER.md").read_text(encoding="utf-8") == page(result)
    for key in result["keys"].values():
        assert key["phe"]["encrypt_times"]["lower"] >= GOAL
        assert key["phe"]["sum_times"]["lower"] >= GOAL
