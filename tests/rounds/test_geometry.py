"""Norms and cosines of a round's updates, against the plain formulas in float64."""

import math
from itertools import combinations

import numpy as np
import pytest

from consilia.core.canonical import canonical_bytes
from consilia.core.update import Vector
from consilia.rounds import geometry


def updates(count: int, dim: int = 70_001, scale: float = 1.0) -> dict[str, Vector]:
    rng = np.random.default_rng(count)
    common = rng.standard_normal(dim)  # so that cosines are not all near zero
    return {f"s{i:02}": (scale * (common + i * rng.standard_normal(dim))).astype(np.float32) for i in range(count)}


def plain(vectors: dict[str, Vector]) -> dict[str, float]:
    exact = {site: vector.astype(np.float64) for site, vector in vectors.items()}
    return {
        f"{a}|{b}": float(exact[a] @ exact[b] / np.linalg.norm(exact[a]) / np.linalg.norm(exact[b]))
        for a, b in combinations(sorted(exact), 2)
    }


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e30])  # the squares of the last overflow in float32
@pytest.mark.parametrize("count", [2, 5, geometry.MAX_PAIRS, geometry.MAX_PAIRS + 3])
def test_against_the_formula(count: int, scale: float) -> None:
    vectors = updates(count, scale=scale)
    lengths = geometry.norms(vectors)
    found = geometry.cosines(vectors, lengths)
    expected = plain(vectors)
    for site, vector in vectors.items():
        assert lengths[site] == pytest.approx(np.linalg.norm(vector.astype(np.float64)), rel=1e-5)
    assert found["mean"] == pytest.approx(np.mean(list(expected.values())), abs=1e-5)
    if count <= geometry.MAX_PAIRS:
        assert found["pairs"] == pytest.approx(expected, abs=1e-5)
    else:
        assert found["pairs"] == {}
    canonical_bytes([lengths, found])  # what the journal does with it: infinity and NaN are refused there


def test_an_update_of_zeros_has_no_direction() -> None:
    vectors = updates(2) | {"zero": np.zeros(70_001, np.float32)}
    found = geometry.cosines(vectors, geometry.norms(vectors))
    assert list(found["pairs"]) == ["s00|s01"]  # type: ignore[arg-type]
    assert geometry.cosines({"zero": vectors["zero"], "s00": vectors["s00"]}, {"zero": 0.0, "s00": 1.0}) == {
        "mean": None, "pairs": {},
    }  # fmt: skip
    assert math.isfinite(geometry.norms({"big": np.full(10, np.finfo(np.float32).max, np.float32)})["big"])
