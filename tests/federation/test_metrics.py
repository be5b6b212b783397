"""The figures for Prometheus: text that its own parser reads, and numbers that are those of hub and queue."""

from collections.abc import Mapping

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from consilia.federation.metrics import Figures, registry_of
from consilia.store.runs import QueuedRun, Standing
from consilia.transport.link.hub import Seen

ODD = 'a "quoted" \\ name\nof two lines'
SITES = {
    "north": Seen(True, 3.0, 1.0, {"up": 1000, "down": 20, "late": 2, "contradicting": 1}),
    ODD: Seen(False, 3.0, 9.0, {}),
}


def queued(run: str, status: Standing, number: int = 0) -> QueuedRun:
    return QueuedRun(run, "{}", status, None, "2026-11-30", "olga", number)


RUNS = [queued("a", "running", 7), queued("b", "done", 40), queued("c", "done", 40), queued("d", "queued")]


def samples(sites: Mapping[str, Seen], runs: list[QueuedRun]) -> dict[tuple[str, tuple[str, ...]], float]:
    text = generate_latest(registry_of(Figures(lambda: dict(sites), lambda: runs))).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = sample.name, tuple(sample.labels.values())
            assert key not in found, "one figure twice"
            found[key] = sample.value
    return found


def test_every_figure_is_that_of_hub_and_queue() -> None:
    found = samples(SITES, RUNS)
    assert found["consilia_site_connected", ("north",)] == 1
    assert found["consilia_bytes_total", ("up", "north")] == 1000
    assert found["consilia_bytes_total", ("down", "north")] == 20
    assert found["consilia_odd_answers_total", ("late", "north")] == 2
    assert found["consilia_odd_answers_total", ("repeated", "north")] == 0
    assert found["consilia_odd_answers_total", ("contradicting", "north")] == 1
    assert found["consilia_runs", ("done",)] == 2
    assert found["consilia_runs", ("failed",)] == 0
    assert found["consilia_run_round", ("a",)] == 7
    assert [key for key in found if key[0] == "consilia_run_round"] == [("consilia_run_round", ("a",))]


def test_a_name_with_odd_characters_is_one_label() -> None:
    found = samples(SITES, RUNS)
    assert found["consilia_site_connected", (ODD,)] == 0
    assert found["consilia_bytes_total", ("up", ODD)] == 0


def test_figures_are_read_when_they_are_asked_for() -> None:
    runs = list(RUNS)
    registry = registry_of(Figures(dict, lambda: runs))
    assert registry.get_sample_value("consilia_run_round", {"run": "a"}) == 7
    runs[0] = queued("a", "running", 8)
    assert registry.get_sample_value("consilia_run_round", {"run": "a"}) == 8


@pytest.mark.parametrize("status", ["queued", "running", "done", "stopped", "failed"])
def test_every_standing_is_counted(status: Standing) -> None:
    assert samples({}, [queued("a", status)])["consilia_runs", (status,)] == 1


def test_nothing_else_of_the_process_is_told() -> None:
    names = {name for name, _ in samples(SITES, RUNS)}
    assert names == {
        "consilia_site_connected", "consilia_bytes_total", "consilia_odd_answers_total", "consilia_runs", "consilia_run_round",
    }  # fmt: skip
