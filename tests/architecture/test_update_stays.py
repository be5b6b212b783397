"""An `Update` never leaves a site: no function that sends, stores or encodes accepts one, for the type checker or at run time."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilia.core import wire
from consilia.core.update import Release, Update
from consilia.rounds.ports import Arrival
from consilia.transport.inprocess import InProcess

REPO = Path(__file__).parents[2]
HEAD = """
import numpy as np
from consilia.core.randomness import SecretRng
from consilia.core.update import ProtocolMessage, Release, Update
from consilia.core.wire import encode, pack_vector, unpack_vector
from consilia.rounds.ports import Arrival, Transport
from consilia.store.journal import Journal
from consilia.store.ledger_store import Hold, SiteStore
from consilia.aggregate.admission import Gate
from consilia.rounds.secure.ports import SiteSum

update = Update(np.zeros(3, np.float32), 1.0)
release = Release(b"", "a", 1, "", "")

def use(transport: Transport, store: SiteStore, hold: Hold, journal: Journal, gate: Gate[None],
        sums: SiteSum) -> None:
"""
# Each line must be refused with an update in the place of what it takes, and accepted with it.
SENDERS = {
    "wire.encode": ("encode({})", "release"),
    "wire.pack_vector": ("pack_vector({})", "np.zeros(3, np.float32)"),
    "wire.unpack_vector": ('unpack_vector({}, 3, who="x")', 'b""'),
    "payload of a release": ('Release({}, "a", 1, "", "")', 'b""'),
    "metrics of a release": ('Release(b"", "a", 1, "", "", {{"u": {}}})', "1.5"),
    "payload of a message": ('ProtocolMessage("failed", "a", 1, {{}}, {})', 'b""'),
    "body of a message": ('ProtocolMessage("failed", "a", 1, {{"u": {}}})', '"text"'),
    "transport.send": ('transport.send("a", {})', 'b""'),
    "arrival": ('Arrival("a", {})', 'b""'),
    "ledger.commit": ('store.commit(hold, release={}, model_digest="", local_state=None)', 'b""'),
    "ledger.seal_free": ('store.seal_free("r", 1, release={}, model_digest="", local_state=None)', 'b""'),
    "journal.commit_round": ("journal.commit_round(1, state=[{}], record={{}}, charges=[])", 'b""'),
    "gate.offer": ('gate.offer("a", {})', "release"),
    "secure sum": ('sums.update(ProtocolMessage("train", "a", 1), {}, None, SecretRng(bytes(32)))', "np.zeros(3)"),
}


def test_the_type_checker_refuses_an_update_wherever_bytes_leave(tmp_path: Path) -> None:
    calls = [call.format(argument) for call, allowed in SENDERS.values() for argument in ("update", allowed)]
    snippet = tmp_path / "snippet.py"
    snippet.write_text(HEAD + "".join(f"    {call}\n" for call in calls))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(REPO / "pyproject.toml"), "--no-error-summary",
         "--hide-error-context", str(snippet)],
        capture_output=True, text=True, cwd=REPO, timeout=300, check=False,
        env={**os.environ, "MYPYPATH": str(REPO / "src")},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    first = HEAD.count("\n") + 1
    refused = {int(line.split(":")[1]) - first for line in done.stdout.splitlines() if ": error:" in line}
    wanted = set(range(0, len(calls), 2))
    assert refused == wanted, [calls[i] for i in sorted(refused ^ wanted)] + [done.stdout]


@pytest.mark.parametrize("send", [
    lambda update: wire.encode(update),
    lambda update: wire.encode(Release(update, "a", 1, "", "")),
    lambda update: wire.encode(Release(b"", "a", 1, "", "", {"u": update})),
    lambda update: wire.decode(update, who="test"),
    lambda update: wire.pack_vector(update),
])  # fmt: skip
def test_at_run_time_an_update_cannot_be_encoded(send: Any) -> None:
    update = Update(np.array([1.25, 2.5, 3.75], np.float32), 1.0)
    with pytest.raises((AttributeError, TypeError, ValueError)):
        send(update)


def test_a_transport_that_is_handed_an_update_gets_it_to_no_site() -> None:
    seen: list[Arrival] = []

    def site(frame: bytes) -> bytes:
        wire.decode(frame, who="site")
        return b""

    transport = InProcess({"a": site}, lambda: 0.0)
    transport.send("a", Update(np.zeros(3, np.float32), 1.0))  # type: ignore[arg-type]
    with pytest.raises((TypeError, AttributeError)):
        seen += [event for event in transport.events(1.0) if isinstance(event, Arrival)]
    assert seen == []
