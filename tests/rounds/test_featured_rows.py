from pathlib import Path
from typing import Any

import numpy as np

from consilia.data.features.apply import apply
from consilia.plan.load import from_text
from consilia.rounds.rows import site_rows

PLAN = """
[data]
source = "npz"
path = "images.npz"
split = "official"
features = "scattering"
normalise = "group"
[sites]
partition = "iid"
count = 2
[training]
batch_size = 4
"""


def test_the_plan_s_features_reach_every_site_s_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {}
    for part, rows in (("train", 9), ("test", 5)):
        parts[f"x_{part}"] = rng.integers(0, 256, size=(rows, 8, 9), dtype=np.uint8)
        parts[f"y_{part}"] = np.arange(rows) % 3
    np.savez(tmp_path / "images.npz", **parts)
    featured = site_rows(from_text(PLAN), tmp_path)
    raw = site_rows(from_text(PLAN, ["data.features=raw", "data.normalise=none"]), tmp_path)
    assert sorted(featured) == ["site-01", "site-02"]
    for site in featured:
        for part in ("train", "test"):
            rows, plain = getattr(featured[site], part), getattr(raw[site], part)
            assert rows.input_shape == (81, 2, 2)
            assert np.array_equal(rows.features, apply(plain, "scattering", "group").features)
            assert rows.fingerprint() == plain.fingerprint()
            assert rows.ids.tolist() == plain.ids.tolist()
