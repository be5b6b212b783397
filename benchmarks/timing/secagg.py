"""CPU time of a session of secure aggregation beside the masks it cannot do without: AES keystream and additions alone.

Every site runs in this process. What is timed is single steps of the machines: all of the coordinator's, and those of a few
sites; right after a site's steps, and after the coordinator's, the bare loop draws and adds as many masks as these needed.
"""

import secrets
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from benchmarks.study import Json
from benchmarks.timing.clock import Moment, digits, quartiles
from consilia.core.randomness import SecretRng
from consilia.core.ring import Ring, Words
from consilia.crypto.signing import SigningKey, verify
from consilia.secagg import client, rules, server
from consilia.secagg.messages import FromSite, Inbox, Masked, ToSite
from consilia.secagg.params import Session
from consilia.secagg.roster import Identity, Roster
from consilia.secagg.state import Contribution, State

BLOCK, AT_ONCE = 1 << 16, 64


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    Attributes:
        sites: n.
        dim: d, words of 32 bits.
        dropouts: Sites that fall silent after they shared their keys: the dearest time.
        adversary: "active" or "passive".
        watched: Sites that are timed; the others check each signature once among them all, to save the machine's time.
        repeats: Sessions to play.
    """

    sites: int
    dim: int
    dropouts: int
    adversary: str = "active"
    watched: int = 5
    repeats: int = 3


def bare(words: Words, count: int) -> float:
    """Draw and add `count` masks and do nothing else; return the CPU seconds."""
    zeros, room = memoryview(bytes(BLOCK)), bytearray(BLOCK + 16)
    buffer, step = memoryview(room), BLOCK // words.itemsize
    stream = np.frombuffer(room, words.dtype, step)
    begun = Moment.now()
    for first in range(0, count, AT_ONCE):
        ciphers = [Cipher(algorithms.AES256(secrets.token_bytes(32)), modes.CTR(bytes(16))).encryptor()
                   for _ in range(min(AT_ONCE, count - first))]  # fmt: skip
        for start in range(0, words.size, step):
            block = words[start : start + step]
            for cipher in ciphers:
                cipher.update_into(zeros[: block.nbytes], buffer)
                np.add(block, stream[: block.size], out=block)
    return (Moment.now() - begun).cpu


class Play:
    """One session, timed."""

    def __init__(self, setting: Setting) -> None:
        self.setting, rng = setting, SecretRng(secrets.token_bytes(32))
        consortium = SigningKey.draw(rng)
        keys = [Identity.draw(f"site-{number:04d}", rng) for number in range(setting.sites)]
        roster = Roster.signed([key.member for key in keys], consortium)
        names = tuple(key.name for key in keys)
        self.session = Session("run", 1, "update", "plan", "model", roster, names, rng.token(16), setting.adversary,
                               setting.sites - setting.dropouts, 0, Ring(32), setting.dim)  # fmt: skip
        self.states: dict[str, State] = {}
        self.silent = set(names[:: max(1, setting.sites // max(1, setting.dropouts))][: setting.dropouts])
        self.watched = [name for name in names if name not in self.silent][: setting.watched]
        self.spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.bare: dict[str, float] = {}
        self.sent: dict[str, int] = defaultdict(int)
        for key in keys:
            with self.timed(key.name, "start"):
                self.states[key.name] = client.start(self.session, key, consortium=consortium.public, rng=rng)
        self.vector = np.frombuffer(secrets.token_bytes(4 * setting.dim), "<u4")

    @contextmanager
    def timed(self, who: str, stage: str) -> Iterator[None]:
        """Add the block's CPU time to what `who` has spent in a stage."""
        begun = Moment.now()
        yield
        self.spent[who][stage] += (Moment.now() - begun).cpu

    def play(self) -> Json:
        """Play the session and return what it took; the sum is checked."""
        with self.timed("server", "start"):
            state, queue = server.start(self.session)
        while queue:
            output = queue.pop(0)
            if not isinstance(output, server.Send):
                break
            for answer in self.at_site(output.site, output.message):
                self.sent[output.site] += len(answer.to_bytes())
                with self.timed("server", answer.STAGE):
                    state, more = server.step(state, server.Received(output.site, answer))
                queue += more
            if not queue:
                with self.timed("server", "masked"):
                    state, queue = server.step(state, server.Deadline())
        assert isinstance(output, server.Done)
        survivors = len(output.survivors)
        assert survivors == self.setting.sites - self.setting.dropouts
        self.opened(output)
        near = state.graph.neighbours
        pairs = sum(peer not in self.silent for site in self.silent for peer in near(site))
        alone = bare(self.vector.copy(), survivors + pairs)
        taken = {who: sum(self.spent[who].values()) for who in (*self.watched, "server")}
        return {
            "neighbours": state.graph.degree, "threshold": state.graph.threshold,
            "client_masks": 1 + state.graph.degree, "server_masks": survivors + pairs,
            "client": [{"cpu": taken[site], "bare": self.bare[site], "stages": dict(self.spent[site]),
                        "bytes_up": self.sent[site]} for site in self.watched],
            "server": {"cpu": taken["server"], "bare": alone, "stages": dict(self.spent["server"])},
        }  # fmt: skip

    def at_site(self, site: str, message: ToSite) -> list[FromSite]:
        """Return what a site answers; with the inbox comes its vector."""
        events: list[client.Event] = [message]
        if isinstance(message, Inbox):
            events.append(self.contribution(site))
        answers: list[FromSite] = []
        for event in events:
            if isinstance(event, Contribution) and site in self.silent:
                return []
            with (
                patch.object(rules, "verify", verify if site in self.watched else _once),
                self.timed(site, _name(event)),
            ):
                self.states[site], some = client.step(self.states[site], event)
            answers += some
        if site in self.watched and isinstance(answers[0], Masked):
            self.bare[site] = bare(self.vector.copy(), 1 + len(self.states[site].inbox.envelopes))
        return answers

    def contribution(self, site: str) -> Contribution:
        """Return a site's vector: one for all, made beforehand."""
        return Contribution(self.vector)

    def opened(self, done: server.Done) -> None:
        """Check the sum."""
        assert np.array_equal(done.total, self.vector * np.uint32(len(done.survivors)))


_once = lru_cache(maxsize=None)(verify)


def _name(event: client.Event) -> str:
    return type(event).__name__.lower()


def sessions(setting: Setting) -> Json:
    """Play a setting's sessions and return the times and ratios of its sites and its coordinator."""
    Play(Setting(5, 1000, 1, watched=1)).play()  # what is only paid once, is paid
    played = [Play(setting).play() for _ in range(setting.repeats)]
    clients = [one for run in played for one in run["client"]]
    servers = [run["server"] for run in played]
    shape = {key: played[0][key] for key in ("neighbours", "threshold", "client_masks", "server_masks")}
    return {
        "sites": setting.sites, "dim": setting.dim, "dropouts": setting.dropouts, "adversary": setting.adversary,
        "sessions": setting.repeats, **shape,
        "client_cpu_ms": _spread(clients, "cpu"), "client_bare_ms": _spread(clients, "bare"), "client_ratio": _ratio(clients),
        "client_stages_ms": _stages(clients),
        "server_cpu_ms": _spread(servers, "cpu"), "server_bare_ms": _spread(servers, "bare"), "server_ratio": _ratio(servers),
        "server_stages_ms": _stages(servers),
        "bytes_up": clients[0]["bytes_up"], "bytes_up_over_float32": digits(clients[0]["bytes_up"] / (4 * setting.dim)),
    }  # fmt: skip


def _spread(runs: list[Json], key: str) -> Json:
    return quartiles([1e3 * run[key] for run in runs])


def _ratio(runs: list[Json]) -> Json:
    return quartiles([run["cpu"] / run["bare"] for run in runs])


def _stages(runs: list[Json]) -> Json:
    return {
        stage: digits(1e3 * float(np.median([run["stages"].get(stage, 0.0) for run in runs])))
        for stage in runs[0]["stages"]
    }
