"""A real Ray cluster on this machine: a head that computes nothing, and two nodes of one core, each with processes of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.federation.onray.hazard import PLACE

ROOT = Path(__file__).resolve().parents[3]
if find_spec("ray") is None:
    pytest.skip("the extra consilia[ray] is not installed", allow_module_level=True)


@contextmanager
def environment(**changes: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class TwoNodes:
    """The cluster, whose nodes can be lost and made up for."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        import consilia.federation.onray  # noqa: F401  (what Ray reads at its import)

        # A lost node is noticed within two seconds instead of a quarter of a minute.
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 400, "health_check_failure_threshold": 5}
        self.cluster: Any = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": quick}
        )
        self.address: str = self.cluster.address

    def make_up(self) -> None:
        """Start nodes until there are two."""
        for node in [node for node in self.cluster.worker_nodes if not node.live_processes()]:
            self.cluster.worker_nodes.discard(node)
        while len(self.cluster.worker_nodes) < 2:
            self.cluster.add_node(num_cpus=1)

    def close(self) -> None:
        for node in list(self.cluster.worker_nodes):
            self.cluster.remove_node(node, allow_graceful=False)
        self.cluster.remove_node(self.cluster.head_node, allow_graceful=False)


@pytest.fixture(scope="package")
def _nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    traps = tmp_path_factory.mktemp("traps")
    with environment(
        **{
            PLACE: str(traps),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
        }
    ):
        nodes = TwoNodes()
        try:
            yield nodes
        finally:
            nodes.close()


@pytest.fixture
def two_nodes(_nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> TwoNodes:
    _nodes.make_up()
    monkeypatch.setenv("RAY_ADDRESS", _nodes.address)
    return _nodes
