"""Does the clock of the study tell the truth: the same run on stated delays, and over gRPC with sites that sleep.

python -m benchmarks.asynchronous_wire     # half a minute; writes results/asynchronous_wire.json
"""

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.contracts.transports import WIRED, Settings
from tests.rounds.asynchronous.stage import SITES, Stage, body, slow

from benchmarks.study import RESULTS, made, scratch
from consilia.core.update import Bytes
from consilia.federation.assemble import entropy_of
from consilia.federation.sums import gatherer_of
from consilia.plan.schema import Plan
from consilia.rounds.coordinator import Coordinator

UNIT = 1.0  # seconds that the quickest site takes for an update
DELAYS = {site: UNIT * times for site, times in zip(SITES, (1, 1, 2, 4), strict=True)}


def on_its_clock(plan: Plan, folder: Path) -> float:
    """Return the virtual seconds of all rounds."""
    one = Stage(plan, folder, DELAYS)
    try:
        one.train()
        return one.coordinator.state.seconds
    finally:
        one.close()


def over_grpc(plan: Plan, folder: Path) -> float:
    """Return the seconds of all rounds over loopback TLS, each site in a thread of its own that sleeps while it works."""
    one = Stage(plan, folder, DELAYS)

    def handle(site: str) -> Callable[[Bytes], bytes]:
        def answer(frame: Bytes) -> bytes:
            if body(bytes(frame)).kind in ("train", "prepare"):
                time.sleep(DELAYS[site])
            return one.simulation.sites[site].handle(frame)

        return answer

    try:
        with WIRED["grpc"](folder / "net", {site: handle(site) for site in SITES}, Settings()) as rig:
            for site in SITES:
                rig.start(site)
            entropy, means = entropy_of(plan), replace(one.simulation.means(None), transport=rig.hub)
            gatherer = gatherer_of(
                one.plan, means, run=one.run, entropy=entropy, records=list, pipelines=one.prepared.pipelines
            )
            coordinator = Coordinator(
                one.plan, run=one.run, state=one.coordinator.state, pipelines=one.prepared.pipelines, transport=rig.hub,
                journal=one.journal, entropy=entropy, clock=time.monotonic, gatherer=gatherer,
            )  # fmt: skip
            coordinator.train()
            return one.coordinator.state.seconds
    finally:
        one.close()


def main() -> None:
    """Measure and write."""
    how, found = made("asynchronous_wire", small=False), {}
    apart = slow(ready=2, rounds=8)
    together = slow(ready=2, rounds=4)
    together = together.model_copy(update={"aggregation": type(together.aggregation)()})
    for name, measure in (("virtual", on_its_clock), ("grpc", over_grpc)):
        with tempfile.TemporaryDirectory(dir=scratch()) as one, tempfile.TemporaryDirectory(dir=scratch()) as other:
            waits, goes_on = measure(together, Path(one)), measure(apart, Path(other))
        found[name] = {
            "synchronous_s": round(waits, 2),
            "two_phase_s": round(goes_on, 2),
            "share": round(goes_on / waits, 3),
        }
    result = {
        "study": "asynchronous_wire",
        "made": how,
        "delays_s": DELAYS,
        "rounds": {"synchronous": 4, "two-phase": 8},
        **found,
    }
    (RESULTS / "asynchronous_wire.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(found)


if __name__ == "__main__":
    main()
