"""Ask sites, wait, admit: one exchange of a round, with every byte counted."""

from collections.abc import Mapping
from dataclasses import dataclass

from consilia.aggregate.admission import Gate
from consilia.core.canonical import Json
from consilia.core.errors import ProtocolError
from consilia.core.update import Gone, ProtocolMessage
from consilia.core.wire import decode, encode
from consilia.rounds.ports import Transport


@dataclass
class Traffic:
    """Bytes that crossed, seen from the coordinator."""

    up: int = 0
    down: int = 0


def ask(
    transport: Transport,
    gate: Gate,
    *,
    kind: str,
    body: dict[str, Json],
    counted: Mapping[str, int],
    payload: bytes,
    timeout: float,
) -> Traffic:
    """Send one task to every site the gate expects and offer it each answer until all came or `timeout` seconds passed."""
    traffic = Traffic()
    for site in sorted(gate.asked):
        frame = encode(ProtocolMessage(kind, site, gate.round, {**body, "counted": counted.get(site, 0)}, payload))
        traffic.down += len(frame)
        transport.send(site, frame)
    for arrival in transport.events(timeout):
        if isinstance(arrival, Gone):
            if arrival.site in gate.asked and arrival.site not in gate.admitted:
                gate.dropped.setdefault(arrival.site, arrival.reason)
            continue
        traffic.up += len(arrival.frame)
        try:
            item = decode(arrival.frame, who=f"coordinator, from {arrival.site}")
        except ProtocolError:
            if arrival.site in gate.asked and arrival.site not in gate.admitted:
                gate.dropped.setdefault(arrival.site, "sent bytes that are no message")
            continue
        gate.offer(arrival.site, item)
    for site in gate.asked - gate.admitted.keys() - gate.dropped.keys():
        gate.dropped[site] = "no answer before the deadline"
    return traffic
