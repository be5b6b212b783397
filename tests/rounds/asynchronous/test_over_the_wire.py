"""Two-phase rounds over gRPC: the hub keeps what a slow site works on while sums go on among the others."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.transports import WIRED, MakeWired, Settings
from tests.rounds.asynchronous.stage import MASKS, SITES, Stage, body, claim, slow

from consilia.core.update import Bytes
from consilia.federation.assemble import entropy_of
from consilia.federation.sums import gatherer_of
from consilia.rounds.coordinator import Coordinator

SLOW, PATIENCE = SITES[3], 60.0


@pytest.mark.parametrize("make", [pytest.param(WIRED["grpc"], id="grpc")])
def test_a_slow_site_is_in_a_later_sum(make: MakeWired, stage: Callable[..., Stage], tmp_path: Path) -> None:
    plan = slow(secure=MASKS, privacy=claim("site", "distributed"), rounds=5, metrics="public")
    one, go, begun = stage(plan, folder="home"), threading.Event(), threading.Event()

    def handle(site: str) -> Callable[[Bytes], bytes]:
        def answer(frame: Bytes) -> bytes:
            if site == SLOW and body(bytes(frame)).kind == "prepare" and not go.is_set():
                begun.set()
                assert go.wait(PATIENCE)
            return one.simulation.sites[site].handle(frame)

        return answer

    with make(tmp_path / "net", {site: handle(site) for site in SITES}, Settings()) as rig:
        for site in SITES:
            rig.start(site)
        means = replace(one.simulation.means(None), transport=rig.hub)
        gatherer: Any = gatherer_of(
            one.plan, means, run=one.run, entropy=entropy_of(plan), records=list, pipelines=one.prepared.pipelines
        )
        coordinator = Coordinator(
            one.plan, run=one.run, state=one.coordinator.state, pipelines=one.prepared.pipelines, transport=rig.hub,
            journal=one.journal, entropy=entropy_of(plan), clock=one.transport.clock, gatherer=gatherer,
        )  # fmt: skip

        def after(record: dict[str, Any]) -> None:
            if record["round"] == 2:
                assert begun.is_set()
                go.set()
                for _ in range(600):  # until it has said so: the next sum then has it, or one of the two after
                    if one.waiting(SLOW) is not None:
                        break
                    threading.Event().wait(0.05)

        coordinator.train(after)
        assert len(coordinator.close("done")) == 4
    records = one.journal.records()
    assert [record["status"] for record in records] == ["counted"] * 5
    assert all(record["accuracy"] is not None for record in records)
    assert [SLOW in record["answered"] for record in records[:2]] == [False, False]
    entered = next(record for record in records if SLOW in record["answered"])
    assert entered["staleness"][SLOW] == entered["round"] - 1  # its update is of the first model, and was not lost
    sums = sum(SLOW in record["answered"] for record in records)
    assert sums <= one.charged(SLOW) <= sums + 1  # the last may be waiting
