"""Send to sites, wait, hand over what comes: one exchange, with every byte counted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from consilia.aggregate.admission import Gate
from consilia.core.canonical import Json
from consilia.core.errors import ProtocolError
from consilia.core.update import Gone, ProtocolMessage, Release
from consilia.core.wire import decode, encode
from consilia.rounds.ports import Transport

_T = TypeVar("_T")


@dataclass
class Traffic:
    """Bytes that crossed, seen from the coordinator."""

    up: int = 0
    down: int = 0

    def add(self, other: "Traffic") -> None:
        """Count another exchange's bytes."""
        self.up += other.up
        self.down += other.down


def exchange(
    transport: Transport,
    tasks: Mapping[str, ProtocolMessage],
    *,
    accept: Callable[[str, Release | ProtocolMessage], object],
    gone: Callable[[str, str], object],
    timeout: float,
) -> Traffic:
    """Send each site its task and hand over every answer until all came or `timeout` seconds passed.

    Args:
        transport: Moves the bytes.
        tasks: What each site is asked.
        accept: Takes an answer and whom the transport had it from.
        gone: Takes a site that will not answer, and why; a site may be named more than once.
        timeout: Seconds.
    """
    traffic = Traffic()
    for site in sorted(tasks):
        frame = encode(tasks[site])
        traffic.down += len(frame)
        transport.send(site, frame)
    for arrival in transport.events(timeout, frozenset(tasks)):
        if arrival.site not in tasks:
            continue  # late, of an earlier exchange
        if isinstance(arrival, Gone):
            gone(arrival.site, arrival.reason)
            continue
        traffic.up += len(arrival.frame)
        try:
            item = decode(arrival.frame, who=f"coordinator, from {arrival.site}")
        except ProtocolError:
            gone(arrival.site, "sent bytes that are no message")
            continue
        accept(arrival.site, item)
    return traffic


def ask(
    transport: Transport,
    gate: Gate[_T],
    *,
    kind: str,
    body: dict[str, Json],
    counted: Mapping[str, int],
    payload: bytes,
    timeout: float,
    beside: Mapping[str, dict[str, Json]] | None = None,
) -> Traffic:
    """Send one task to every site the gate expects, and offer it each answer.

    Args:
        transport: Moves the bytes.
        gate: Admits answers.
        kind: Of the task.
        body: Of the task, the same for every site.
        counted: site -> last round in which its answer counted.
        payload: Of the task.
        timeout: Seconds.
        beside: site -> what only its own task says.
    """
    tasks = {
        site: ProtocolMessage(
            kind, site, gate.round, {**body, "counted": counted.get(site, 0), **(beside or {}).get(site, {})}, payload
        )
        for site in gate.asked
    }
    traffic = exchange(transport, tasks, accept=gate.offer, gone=gate.lost, timeout=timeout)
    for site in gate.asked:
        gate.lost(site, "no answer before the deadline")
    return traffic
