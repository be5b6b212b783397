"""What a coordinator counts, for Prometheus: sites, bytes and runs; never anything computed from data."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from consilia.store.runs import QueuedRun
from consilia.transport.link.hub import Seen

_DIRECTIONS = ("up", "down")
_ANSWERS = ("late", "repeated", "contradicting")


class Figures:
    """Reads the figures when they are asked for.

    Args:
        sites: What the hub sees.
        runs: All runs.
    """

    def __init__(self, sites: Callable[[], dict[str, Seen]], runs: Callable[[], list[QueuedRun]]) -> None:
        self._sites = sites
        self._runs = runs

    def collect(self) -> Iterator[Metric]:
        """Yield every figure."""
        sites = self._sites()
        connected = GaugeMetricFamily("consilia_site_connected", "1 while a site has a stream.", labels=["site"])
        moved = CounterMetricFamily(
            "consilia_bytes", "Bytes of messages, by site and direction.", labels=["site", "direction"]
        )
        odd = CounterMetricFamily(
            "consilia_odd_answers", "Answers that did not count, by site and kind.", labels=["site", "kind"]
        )
        for name, seen in sorted(sites.items()):
            connected.add_metric([name], float(seen.connected))
            for direction in _DIRECTIONS:
                moved.add_metric([name, direction], seen.counts.get(direction, 0))
            for kind in _ANSWERS:
                odd.add_metric([name, kind], seen.counts.get(kind, 0))
        runs = GaugeMetricFamily("consilia_runs", "Runs, by status.", labels=["status"])
        rounds = GaugeMetricFamily(
            "consilia_run_round", "Last round that was committed, of runs that go on.", labels=["run"]
        )
        known = self._runs()
        for status in ("queued", "running", "done", "stopped", "failed"):
            runs.add_metric([status], sum(run.status == status for run in known))
        for run in known:
            if run.status == "running":
                rounds.add_metric([run.run], run.round)
        yield from (connected, moved, odd, runs, rounds)


def registry_of(figures: Figures) -> CollectorRegistry:
    """Return a registry of these figures and of nothing else."""
    registry = CollectorRegistry()
    registry.register(figures)
    return registry
