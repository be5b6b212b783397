"""A consortium, sessions among its sites, and a run of one with a choice of who falls silent when."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.ring import Ring, Words
from consilia.crypto.signing import SigningKey
from consilia.secagg import client, server
from consilia.secagg.messages import FromSite, Inbox, Refused, Reveal, ToSite, from_site, to_site
from consilia.secagg.params import Session, least_threshold
from consilia.secagg.roster import Identity, Roster
from consilia.secagg.state import Contribution, State

CONSORTIUM = SigningKey(b"c" * 32)
STAGES = ("advert", "shares", "masked", "vote", "reveal")


def rng(*labels: str | int) -> SecretRng:
    return SecretRng.reproducible_from(SharedSeed.of(0).derive(*labels))


@lru_cache(maxsize=16)
def identities(count: int) -> tuple[Identity, ...]:
    return tuple(Identity.draw(f"site-{i:03d}", rng("identity", i)) for i in range(count))


@lru_cache(maxsize=16)
def roster(count: int) -> Roster:
    return Roster.signed([identity.member for identity in identities(count)], CONSORTIUM)


def session(
    count: int,
    *,
    fewest: int | None = None,
    adversary: str = "active",
    bits: int = 32,
    dim: int = 3,
    colluders: int = 0,
) -> Session:
    return Session(
        "run", 7, "update", "p" * 64, "m" * 64, roster(count), tuple(one.name for one in identities(count)), b"s" * 16,
        adversary, max(3, least_threshold(adversary, count)) if fewest is None else fewest, colluders, Ring(bits), dim,
    )  # fmt: skip


def vector(site: str, of: Session, *, salt: int = 0) -> Words:
    generator = np.random.default_rng([int(site[-3:]), salt])
    return generator.integers(0, 1 << min(of.ring.bits, 63), of.dim, np.uint64).astype(of.ring.dtype)


def starts(of: Session, *labels: str | int) -> dict[str, State]:
    return dict(_starts(of, *labels))  # states never change, so many runs may begin with the same


@lru_cache(maxsize=64)
def _starts(of: Session, *labels: str | int) -> dict[str, State]:
    keys = {one.name: one for one in identities(len(of.roster.members))}
    return {
        site: client.start(of, keys[site], consortium=CONSORTIUM.public, rng=rng("state", site, *labels))
        for site in of.cohort
    }


Tamper = Callable[[str, ToSite], list[ToSite]]


@dataclass
class Run:
    """Plays a session out in process; every message goes through its bytes.

    Attributes:
        of: The session.
        silent: Stage -> sites that never send that stage's message, or anything later.
        said: Every message a site sent, in order.
        heard: Every message a site was sent.
        tamper: What a hostile coordinator makes of a message for a site: other messages, or none.
    """

    of: Session
    silent: Mapping[str, Collection[str]] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    said: list[tuple[str, FromSite]] = field(default_factory=list)
    heard: list[tuple[str, ToSite]] = field(default_factory=list)
    tamper: Tamper | None = None
    end: server.Done | server.Abort | None = None

    def __post_init__(self) -> None:
        self.states = self.states or starts(self.of)
        self.gone: set[str] = set()

    def play(self) -> "server.Done | server.Abort":
        state, outputs = server.start(self.of)
        self.server = state
        queue = list(outputs)
        while self.end is None:
            while queue:
                output = queue.pop(0)
                if not isinstance(output, server.Send):
                    self.end = output
                    return self.end
                sent = [output.message] if self.tamper is None else self.tamper(output.site, output.message)
                for message in [answer for one in sent for answer in self.deliver(output.site, one)]:
                    if message.STAGE in STAGES and output.site in self.silent.get(message.STAGE, ()):
                        self.gone.add(output.site)
                    if output.site not in self.gone:
                        self.said.append((output.site, message))
                        received = from_site(message.STAGE, message.to_bytes(), who=output.site)
                        state, more = server.step(state, server.Received(output.site, received))
                        queue += more
            if self.end is None:
                state, queue = server.step(state, server.Deadline())
        raise AssertionError

    def deliver(self, site: str, message: ToSite) -> list[FromSite]:
        if site in self.gone:
            return []
        self.heard.append((site, message))
        events: list[client.Event] = [to_site(message.STAGE, message.to_bytes(), who=site)]
        if isinstance(message, Inbox):
            events.append(Contribution(vector(site, self.of)))
        sent: list[FromSite] = []
        for event in events:
            self.states[site], effects = client.step(self.states[site], event)
            sent += effects
        return sent

    def expected(self, survivors: Collection[str]) -> NDArray[np.int64]:
        total = np.zeros(self.of.dim, self.of.ring.dtype)
        for site in survivors:
            total += vector(site, self.of)
        return self.of.ring.center(total)


def refusals(run: Run) -> dict[str, str]:
    return {site: message.reason for site, message in run.said if isinstance(message, Refused)}


def revealed(run: Run) -> dict[str, Reveal]:
    return {site: message for site, message in run.said if isinstance(message, Reveal)}


def other(of: Session, **changes: object) -> Session:
    return replace(of, **changes)  # type: ignore[arg-type]
