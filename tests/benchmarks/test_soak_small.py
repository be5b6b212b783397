"""The soak in small: it ends, its books agree, nothing grows by much; and what would be wrong is seen."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.soak import SMALL, page, sound
from benchmarks.study import RESULTS, ROOT, scratch
from benchmarks.timing.growth import growth, last_two_thirds
from benchmarks.timing.soak import RUN, Soak, soak
from benchmarks.timing.soak_books import books


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Soak]:
    folder = Path(scratch() or tmp_path_factory.mktemp("soak")) / f"consilia-{tmp_path_factory.mktemp('soak').name}"
    folder.mkdir()
    yield soak(SMALL, folder)
    shutil.rmtree(folder)


def found(of: Soak, folder: Path | None = None) -> dict[str, Any]:
    return dict(books(folder or of.folder, RUN, SMALL.sites, SMALL.rounds, of.kills))


def test_a_run_with_faults_comes_to_its_end_and_its_books_agree(soaked: Soak) -> None:
    assert (soaked.status, soaked.reason) == ("done", None)
    assert sum(soaked.kills.values()) >= 1
    book = found(soaked)
    assert book["wrong"] == []
    assert book["counted"] >= 20
    assert 0 < book["answers_counted"] <= book["released"] <= book["charged"]
    assert book["answers_counted"] < SMALL.rounds * len(SMALL.sites)  # or no message was lost


def test_no_process_grows_by_much(soaked: Soak) -> None:
    assert set(soaked.samples) == {"coordinator", SMALL.sites[0]}
    for samples in soaked.samples.values():
        late = last_two_thirds(samples)
        assert len(late) >= 4
        first, last = late[0], late[-1]
        assert last["anonymous_mb"] - first["anonymous_mb"] < 3.0
        assert last["open_files"] - first["open_files"] <= 4
        assert last["threads"] - first["threads"] <= 4


def test_books_that_were_cooked_are_seen(soaked: Soak, tmp_path: Path) -> None:
    folder, site = tmp_path / "all", SMALL.sites[0]
    shutil.copytree(soaked.folder, folder)
    log = folder / site / "home" / "audit.jsonl"
    lines = log.read_text().splitlines()
    updates = [line for line in lines if "an update" in line]
    other = json.dumps({**json.loads(updates[0]), "round": 999})
    log.write_text("\n".join([*lines, other]) + "\n")
    assert any("was not charged for" in text for text in found(soaked, folder)["wrong"])
    log.write_text("\n".join(line for line in lines if line not in updates[:10]) + "\n")
    wrong = found(soaked, folder)["wrong"]
    assert any("did not send" in text and "counted" in text for text in wrong)
    assert any("was charged for" in text for text in wrong)
    log.write_text("\n".join([*lines, json.dumps({**json.loads(updates[0]), "sha256": "0"})]) + "\n")
    with pytest.raises(ValueError, match="two updates"):
        found(soaked, folder)


@pytest.mark.parametrize("leak", [0.0, 0.01])
def test_a_slope_is_found_among_outliers(leak: float) -> None:
    places = [float(10 * number) for number in range(20)]
    values = [
        200 + leak * place + (5.0 if number % 7 == 3 else 0.01 * (number % 3)) for number, place in enumerate(places)
    ]
    one = growth(places, values, 100.0)
    assert one["lower"] <= one["slope"] <= one["upper"]
    assert one["slope"] == pytest.approx(100 * leak, abs=0.05)
    assert (one["upper"] < 0.5) == (leak == 0.0)


def test_the_published_soaks_are_sound_and_the_page_is_made_from_them() -> None:
    result = json.loads((RESULTS / "soak.json").read_text())
    assert (ROOT / "benchmarks" / "SOAK.md").read_text(encoding="utf-8") == page(result)
    assert [one["mode"] for one in result["soaks"]] == ["plain", "masks"]
    for one in result["soaks"]:
        assert (one["rounds"], one["sites"], round(sum(one["faults"]), 9)) == (300, 20, 0.1)
        assert sound(one), one["wrong"]
