"""Messages come in any order, twice or never, deadlines at any time: still the exact sum of those whose vectors came."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.secagg.consortium import session, starts, vector

from consilia.core.ring import BITS
from consilia.secagg import client, server
from consilia.secagg.messages import FromSite, Inbox, Masked, Refused, ToSite, from_site, to_site
from consilia.secagg.state import Contribution, State


class Network:
    """A session over a network that a dice player owns."""

    def __init__(
        self, count: int, bits: int, adversary: str, dice: Random, *, loss: float, repeats: float, hurry: float
    ):
        self.of = session(count, bits=bits, adversary=adversary)
        self.states: dict[str, State] = starts(self.of)
        self.dice, self.loss, self.repeats, self.hurry = dice, loss, repeats, hurry
        self.to_sites: list[tuple[str, bytes, str]] = []
        self.to_server: list[tuple[str, FromSite]] = []
        self.first: dict[tuple[str, str], bytes] = {}  # what each site said at each stage
        self.ends: list[server.Done | server.Abort] = []

    def play(self) -> "server.Done | server.Abort":
        self.server, outputs = server.start(self.of)
        self.take(outputs)
        while not self.ends:
            waiting = len(self.to_sites) + len(self.to_server)
            if not waiting or self.dice.random() < self.hurry:
                self.server, outputs = server.step(self.server, server.Deadline())
                self.take(outputs)
            elif self.dice.randrange(waiting) < len(self.to_sites):
                self.at_site(*self.draw(self.to_sites))
            else:
                site, message = self.draw(self.to_server)
                self.server, outputs = server.step(self.server, server.Received(site, message))
                self.take(outputs)
        for site, message in self.to_server:  # what comes too late changes nothing
            self.server, outputs = server.step(self.server, server.Received(site, message))
            assert outputs == []
        return self.ends[0]

    def draw(self, queue: list):  # type: ignore[type-arg, no-untyped-def]
        item = queue.pop(self.dice.randrange(len(queue)))
        if self.dice.random() < self.repeats:
            queue.append(item)
        return item

    def take(self, outputs: list[server.Output]) -> None:
        for output in outputs:
            if not isinstance(output, server.Send):
                self.ends.append(output)
            elif self.dice.random() >= self.loss:
                self.to_sites.append((output.site, output.message.to_bytes(), output.message.STAGE))

    def at_site(self, site: str, raw: bytes, stage: str) -> None:
        message: ToSite = to_site(stage, raw, who=site)
        events: list[client.Event] = (
            [message, Contribution(vector(site, self.of))] if isinstance(message, Inbox) else [message]
        )
        for event in events:
            stored = self.states[site].to_bytes()  # a site may be restarted between any two events
            restored = State.from_bytes(stored, self.of, self.states[site].identity)
            self.states[site], answers = client.step(restored, event)
            for answer in answers:
                assert not isinstance(answer, Refused), answer.reason
                said = bytes(answer.to_bytes())
                assert self.first.setdefault((site, answer.STAGE), said) == said
                if self.dice.random() >= self.loss:
                    self.to_server.append((site, from_site(answer.STAGE, said, who=site)))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 12), st.sampled_from(BITS), st.sampled_from(["active", "passive"]), st.randoms(use_true_random=False),
    st.sampled_from([0.0, 0.02, 0.2]), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.01, 0.1]),
)  # fmt: skip
def test_any_order_of_messages(
    count: int, bits: int, adversary: str, dice: Random, loss: float, repeats: float, hurry: float
) -> None:
    network = Network(count, bits, adversary, dice, loss=loss, repeats=repeats, hurry=hurry)
    end, of = network.play(), network.of
    assert len(network.ends) == 1
    if isinstance(end, server.Done):
        assert set(end.survivors) <= {site for site, stage in network.first if stage == Masked.STAGE}
        assert len(end.survivors) >= of.fewest
        total = np.zeros(of.dim, of.ring.dtype)
        for site in end.survivors:
            total += vector(site, of)
        np.testing.assert_array_equal(of.ring.center(end.total), of.ring.center(total))
    else:
        assert loss or hurry
    if isinstance(end, server.Done) and not loss and not hurry:
        assert end.survivors == of.cohort
