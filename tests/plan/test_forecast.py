"""Bytes that were forecast are bytes that cross, and what makes messages smaller is counted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from consilia import api
from consilia.plan.forecast import Forecast, forecast, hours
from consilia.plan.run_plan import RunPlan

HEART = Path(__file__).resolve().parents[2] / "examples" / "plans" / "heart.toml"
SHARED = ("secure_sum.dropouts=1", "privacy.noise=distributed")
Checked = Callable[..., RunPlan]


def ahead(checked: Checked, *changes: str) -> Forecast:
    return forecast(checked(*changes))


@pytest.mark.parametrize(("mode", "close"), [("masks", 0.05), ("rlwe", 0.03), ("paillier", 0.1)])
def test_sums_cross_as_forecast(mode: str, close: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path))
    keys = [*SHARED, f"secure_sum.mode={mode}", "training.rounds=3", "training.keep=last"]
    plan = api.load(HEART, set=[*keys, "secure_sum.key_bits=2048"] if mode == "paillier" else keys)
    found, done = forecast(api.check(plan)), api.run(plan, tmp_path / "run").summary
    assert done["bytes_up"] == pytest.approx(found["up"], rel=close)
    assert done["bytes_down"] == pytest.approx(found["down"], rel=close)
    assert found["up"] > 3 * forecast(api.check(api.load(HEART, set=["training.rounds=3"])))["up"]


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ([], 4 * 28),
        (["messages.random_k=0.25"], 4 * 7),
        (["messages.quantize_bits=8"], 1 + 4 + 28),  # a flag, the scale of one block, a byte a number
        (["secure_sum.mode=masks"], 3 * 28),  # a ring of 24 bits
        (["secure_sum.mode=masks", "messages.quantize_bits=4"], 2 * 28),
        (["secure_sum.mode=masks", "messages.random_k=0.25"], 3 * 7),
        (["secure_sum.mode=attested", "secure_sum.policy=p.toml"], 4 * 28 + 48),  # a fresh key and a tag
        (["secure_sum.mode=paillier", "secure_sum.key_bits=2048"], 512 + 256),  # one ciphertext and a tag
    ],
)
def test_an_update_takes_what_its_form_takes(checked: Checked, changes: list[str], size: int) -> None:
    assert ahead(checked, *changes)["update"] == pytest.approx(size, abs=2)


def test_threshold_encryption_takes_whole_polynomials(checked: Checked) -> None:
    found = ahead(checked, "secure_sum.mode=rlwe")
    assert found["update"] > 4 * 4096 * 30 // 8
    assert found["up"] > found["update"] * 4 * 40


def test_more_sites_say_more_to_each_other(checked: Checked) -> None:
    def exchange(sites: int) -> int:
        counts = {f"site-{index:03d}": 40 for index in range(sites)}
        return forecast(checked("secure_sum.mode=masks", counts=counts))["exchange"]

    four, forty = exchange(4), exchange(40)
    assert 6 * four < forty < 10 * four  # in proportion to the sites, less what every session takes
    assert exchange(400) < 8 * forty  # above 100 sites each shares masks with some of them only


def test_hours_over_a_link(checked: Checked) -> None:
    found = ahead(checked)
    assert hours(found, 10.0) == pytest.approx(found["busiest_site"] * 8 / 10e6 / 3600)
    assert hours(found, 1.0) == pytest.approx(10 * hours(found, 10.0))
