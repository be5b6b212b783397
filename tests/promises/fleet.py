"""A federation small enough for a thousand runs: real plans, sites, ledgers, journals and secure sums; a learner of a few rows.

Nothing here imports torch: what is tried is what happens between the steps of training, not training.
"""

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.spec import Segment
from consilia.core.update import Vector
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.signing import SEED_SIZE, SigningKey
from consilia.dp.mechanism import GaussianMechanism
from consilia.plan.check import check
from consilia.plan.load import from_text
from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.rounds.coordinator import Coordinator, server_optimizer
from consilia.rounds.entropy import Entropy
from consilia.rounds.pipelines import Pipeline, pipelines
from consilia.rounds.ports import Clock, LocalState, Score, Trained, Transport
from consilia.rounds.secure.masked import MaskedSums
from consilia.rounds.secure.masked_site import MaskedSite
from consilia.rounds.secure.sessions import Party
from consilia.rounds.secure.shape import UPDATE
from consilia.rounds.site import Site
from consilia.rounds.state import TrainingState, from_bytes, to_pieces
from consilia.secagg.roster import Identity, Roster
from consilia.secagg.transcript import Entry
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore

RUN = "promises"
DIM = 8
COUNTS = {"Arnhem": 9, "Bergen": 7, "Cork": 12, "Derby": 5, "Evora": 8}
DEADLINE = 10.0
_RECORD = 'unit = "record"\nnoise_multiplier = 5.0\nclip_norm = 1.0\ndelta = 1e-2\ndelta_reason = "a test"\nnoise = '
_PRIVACY = {
    "clear": 'unit = "none"', "dp": _RECORD + '"site"', "server": _RECORD + '"server"', "masks": 'unit = "none"',
    "masks-dp": _RECORD + '"distributed"',
}  # fmt: skip
_METRICS = {
    "clear": 'metrics = "public"', "dp": 'metrics = "charged"\nnoise_multiplier = 5.0\nevery = 2',
    "server": 'metrics = "public"', "masks": 'metrics = "public"\nevery = 2', "masks-dp": 'metrics = "hidden"',
}  # fmt: skip
MODES = tuple(_PRIVACY)


@dataclass(frozen=True)
class Case:
    """A plan of this bench, by what matters here."""

    mode: str
    sites: int = 4
    rounds: int = 3
    reproducible: bool = False
    stop_loss: float | None = None
    deadline: float = DEADLINE

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(COUNTS)[: self.sites]

    @property
    def secure(self) -> bool:
        return self.mode.startswith("masks")


@cache
def run_plan(case: Case) -> RunPlan:
    """Check the plan, once a process."""
    counts = ", ".join(f"{name} = {COUNTS[name]}" for name in case.names)
    spare = 1 if case.sites > 3 else 0
    quorum = "" if case.secure else "quorum = 2\n"
    secure = f'[secure_sum]\nmode = "masks"\ndropouts = {spare}\n' if case.secure else ""
    plan = from_text(f"""
[run]
reproducible = {str(case.reproducible).lower()}
[data]
source = "heart"
[sites]
counts = {{ {counts} }}
[training]
algorithm = "fedsgd"
batch = "full"
rounds = {case.rounds}
server_optimizer = "momentum"
server_learning_rate = 0.5
[privacy]
{_PRIVACY[case.mode]}
[aggregation]
{quorum}deadline_seconds = {case.deadline}
[evaluation]
{_METRICS[case.mode]}
{"" if case.stop_loss is None else f"stop_loss = {case.stop_loss}"}
{secure}""")
    segments = (Segment("weight", (2, 3)), Segment("bias", (2,)))
    held = {name: COUNTS[name] for name in case.names}
    return check(plan, counts=held, input_shape=(3,), classes=2, segments=segments)


def initial() -> Vector:
    return np.linspace(-0.5, 0.5, DIM).astype(np.float32)


class Rows:
    """A site's few rows: logistic regression, and a number kept at the site from one counted round to the next."""

    def __init__(self, half: SiteHalf) -> None:
        self._half = half
        rng = np.random.default_rng(list(half.terms.name.encode()))
        count = COUNTS[half.terms.name]
        self.features = rng.normal(size=(count, DIM)).astype(np.float32)
        self.labels = (rng.random(count) < 0.5).astype(np.float32)

    def train(self, payload: Vector, local: LocalState | None, round_number: int, secret: SecretRng) -> Trained:
        """Return minus the gradient; where nothing is protected what the site kept since the last counted round is in it."""
        own = np.asarray(local["c"], np.float64) if local else np.zeros(DIM)
        privacy, terms = self._half.plan.privacy, self._half.terms
        each = self.gradients(payload)
        if privacy.unit == "none":
            mean = each.mean(axis=0)
            return Trained(
                (0.25 * own - mean).astype(np.float32), {"c": 0.5 * own + mean}, float(np.square(mean).sum())
            )
        bound = privacy.clip_norm or 0.0
        lengths = np.linalg.norm(each, axis=1, keepdims=True)
        total = (each * np.minimum(1.0, bound / np.maximum(lengths, 1e-12))).sum(axis=0)
        if privacy.noise == "site":
            total = GaussianMechanism(self._half.noise_multiplier, bound).release(total, secret)
        step = total / terms.phases[0].expected_batch
        return Trained((-step).astype(np.float32), {"c": 0.5 * own + step}, None)

    def gradients(self, payload: Vector) -> NDArray[np.float64]:
        """Return each row's gradient, shape (n, d)."""
        x = self.features.astype(np.float64)
        likely = 0.5 * (1.0 + np.tanh(0.5 * (x @ payload)))
        return np.asarray((likely - self.labels)[:, None] * x)

    def evaluate(self, payload: Vector, local: LocalState | None) -> Score:
        right = ((self.features @ payload > 0) == (self.labels > 0.5)).sum()
        return Score(int(right), float(len(self.labels) - right), len(self.labels))


class Fresh(Entropy):
    """What the operating system gives, but the same again for the same schedule: no key comes twice within one."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._schedule, self._drawn = seed, 0
        self.keys: list[tuple[tuple[str | int, ...], bytes]] = []

    def stream(self, *labels: str | int) -> SecretRng:
        self._drawn += 1
        key = blake2b(f"{self._schedule}/{self._drawn}".encode(), digest_size=32).digest()
        self.keys.append((labels, key))
        return SecretRng(key)


def entropy_for(case: Case, seed: int) -> Entropy:
    return Entropy(SharedSeed.of(0).derive("reproducible")) if case.reproducible else Fresh(seed)


def _seed(label: str, size: int) -> bytes:
    return blake2b(label.encode(), digest_size=size).digest()


@cache
def identities() -> Mapping[str, Identity]:
    found = {}
    for name in COUNTS:
        seed = _seed(name, 2 * SEED_SIZE)
        found[name] = Identity(name, SigningKey(seed[:SEED_SIZE]), ExchangeKey(seed[SEED_SIZE:]))
    return found


CONSORTIUM, COORDINATOR = SigningKey(_seed("consortium", SEED_SIZE)), SigningKey(_seed("coordinator", SEED_SIZE))


@cache
def roster(names: tuple[str, ...]) -> Roster:
    return Roster.signed([identities()[name].member for name in names], CONSORTIUM)


class Fleet:
    """The parts of one run in a folder, each opened and dropped by itself, as processes are."""

    def __init__(self, case: Case, folder: Path, entropy: Entropy) -> None:
        self.case = case
        self.plan = run_plan(case)
        self.folder = folder
        self.entropy = entropy
        self.steps: tuple[Pipeline, ...] = pipelines(self.plan, control_dim=0)
        self.journal_path = folder / "journal.sqlite"
        folder.mkdir(parents=True, exist_ok=True)

    def site_path(self, name: str) -> Path:
        return self.folder / f"{name}.sqlite"

    def open_site(self, name: str) -> tuple[Site, SiteStore]:
        """Open a site on its store, as a process that starts does."""
        half = self.plan.site(name)
        store = SiteStore.open(self.site_path(name), name)
        try:
            share = half.terms.weight / max(terms.weight for terms in self.plan.sites)
            sums = self._masked(name, half, share, store) if half.secure is not None else None
            site = Site(
                half, run=RUN, learner=Rows(half), pipelines=self.steps, payload_dim=DIM, store=store, entropy=self.entropy,
                fingerprint=f"rows of {name}", share=share, sums=sums,
            )  # fmt: skip
            site.require_room()
            site.open()
        except BaseException:
            store.close()
            raise
        return site, store

    def _masked(self, name: str, half: SiteHalf, share: float, store: SiteStore) -> MaskedSite:
        names, schedule = self.case.names, self.plan.schedule

        def cohort(purpose: str, number: int, *_: object) -> tuple[str, ...]:
            if purpose != UPDATE:
                return names if 0 < number <= len(schedule) + 1 else ()
            return tuple(sorted(schedule[number - 1])) if 0 < number <= len(schedule) else ()

        party = Party(identities()[name], roster(names), CONSORTIUM.public, COORDINATOR.public)
        assert half.secure is not None
        return MaskedSite(
            half,
            half.secure,
            run=RUN,
            party=party,
            cohort=cohort,
            share=share,
            store=store.sessions,
            entropy=self.entropy,
            alone=True,  # each is killed by itself, as real sites are
        )

    def begun(self) -> bool:
        """Return whether the run's first transaction is on disk; before, a process that was killed begins again."""
        if not self.journal_path.exists():
            return False
        with closing(sqlite3.connect(self.journal_path)) as sql:
            made = sql.execute("SELECT name FROM sqlite_master WHERE name = 'run'").fetchone()
            return bool(made and sql.execute("SELECT run FROM run").fetchone())

    def open_journal(self) -> Journal:
        """Begin the run, or go on with it."""
        if self.begun():
            return Journal.open(self.journal_path)
        optimizer = server_optimizer(self.plan.phases[0].plan)
        state = TrainingState(initial(), moments=optimizer.init(DIM))
        return Journal.create(
            self.journal_path, run=RUN, plan_json="{}", digest=self.plan.digest, state=to_pieces(state)
        )

    def coordinator(self, journal: Journal, transport: Transport, clock: Clock) -> Coordinator:
        gatherer, secure = None, self.plan.secure
        if secure is not None:

            def entries() -> list[Entry]:
                told = [record["transcript"] for record in journal.records()]
                return [Entry.from_json(entry) for entry in told if entry is not None]

            gatherer = MaskedSums(
                self.plan, secure, run=RUN, transport=transport, roster=roster(self.case.names), signing=COORDINATOR,
                entropy=self.entropy, entries=entries,
            )  # fmt: skip
        return Coordinator(
            self.plan, run=RUN, state=from_bytes(journal.state), pipelines=self.steps, transport=transport,
            journal=journal, entropy=self.entropy, clock=clock, gatherer=gatherer,
        )  # fmt: skip

    def finish(self, coordinator: Coordinator, journal: Journal) -> None:
        """Bring a run whose rounds are over to its end, as a session does."""
        state = coordinator.state
        _, final = coordinator.evaluate_result()
        status, reason = ("stopped", state.stopped) if state.stopped else ("done", None)
        if state.skipped == state.round:
            status, reason = "failed", "no round counted"
        heads = coordinator.close(status)
        journal.finish(status, reason, {"accuracy": final.accuracy, "heads": dict(heads)})  # type: ignore[arg-type]


def with_stores(case: Case, folder: Path, shelf: Path) -> Path:
    """Put empty stores into a folder, copied from ones made once: making tables takes longer than a round."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in case.names:
        made = shelf / f"{name}.sqlite"
        if not made.exists():
            SiteStore.open(made, name).close()
        shutil.copyfile(made, folder / f"{name}.sqlite")
    return folder
