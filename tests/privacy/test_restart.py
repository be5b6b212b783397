"""Pattern K: whatever is killed, restored or started twice, a ledger never shows less than was released."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.privacy.lab import FEDSGD, SITES, Lab, Sent, plan_of, privacy

import consilia
from consilia.core.errors import BudgetExceeded, StoreError
from consilia.core.update import ProtocolMessage
from consilia.core.wire import decode
from consilia.store.ledger_store import SiteStore
from consilia.transport.session import JOURNAL, RESULT

LabMaker = Callable[..., Lab]
ROUNDS = 4


class Killed(Exception):
    """Stands for the end of a process: nothing after it runs."""


def kinds(home: Path, site: str, population: str = "heart") -> list[str]:
    with SiteStore.open(home / "sites" / f"{site}.sqlite", site) as store:
        store.verify(population)
        return [str(entry.kind) for entry in store.entries(population)]


def charged(home: Path) -> dict[str, int]:
    return {site: kinds(home, site).count("reserve") for site in SITES}


def models_sent(frames: list[Sent]) -> set[bytes]:
    found: set[bytes] = set()
    for sent in frames:
        task = decode(sent.frame, who="test")
        assert isinstance(task, ProtocolMessage)
        if task.kind in ("train", "evaluate"):
            found.add(bytes(task.payload))
    return found


@pytest.mark.parametrize("unit", ["site", "record"])
def test_noise_at_the_server_is_drawn_once_for_a_round(unit: str, lab: LabMaker) -> None:
    """The noised model goes to the sites for scoring. Killed then and resumed, the coordinator must not noise the same sum
    again: two such models tell more than the one that was charged.
    """
    training = FEDSGD if unit == "record" else 'batch = "full"\nlocal_steps = 2'
    plan = plan_of(rounds=2, training=training, protect=privacy(unit, "server", z=2.0),
                   evaluation='metrics = "public"', reproducible=False)  # fmt: skip
    first = lab(plan)
    send = first.wire.send

    def dies(site: str, frame: bytes) -> None:
        send(site, frame)
        task = decode(frame, who="test")
        assert isinstance(task, ProtocolMessage)
        if (task.kind, task.round, site) == ("evaluate", 1, SITES[1]):
            raise Killed

    first.wire.send = dies  # type: ignore[method-assign]
    with pytest.raises(Killed):
        first.coordinator.train()
    first.close()
    second = lab(plan, resume=True)
    second.train()
    assert [record["status"] for record in second.journal.records()] == ["counted"] * 2
    # The first model, that of round 1 and that of round 2: no second version of round 1 was ever seen.
    assert len(models_sent(first.wire.down + second.wire.down)) == 3
    assert charged(second.home) == dict.fromkeys(SITES, 2)
