"""A site's dealings with its ledger in one run: admission, holds, and how often each phase was charged."""

import math

from consilia.core.errors import ProtocolError
from consilia.dp.event import AnyEvent
from consilia.dp.ledger import Allotment
from consilia.plan.run_plan import SiteHalf
from consilia.store.ledger_store import Hold, Purpose, SiteStore


class Account:
    """What a run may charge a site's ledger, and has charged.

    Args:
        half: The site's half of the plan.
        run: Id of the run.
        store: The site's ledger; None where nothing is kept.
        fingerprint: Digest of the site's rows; recorded in its ledger, never sent.
        reproducible: Whether an open hold of a killed process may be taken up again: what it computes is the same.
    """

    def __init__(
        self, half: SiteHalf, run: str, store: SiteStore | None, *, fingerprint: str, reproducible: bool
    ) -> None:
        self._half = half
        self._run = run
        self._store = store
        self._fingerprint = fingerprint
        self._reproducible = reproducible
        self.charges = [0] * len(half.phases)

    def require_room(self) -> None:
        """Check that the ledger would admit the run, and write nothing.

        Raises:
            BudgetExceeded: If the population's budget does not cover the run's whole schedule.
        """
        allotment = self._allotment()
        if self._store is not None and allotment is not None:
            self._store.require_room(allotment, limit=self._half.plan.ledger.max_epsilon)

    def open(self) -> None:
        """Admit the run to the ledger before anything starts.

        Raises:
            BudgetExceeded: If the population's budget does not cover the run's whole schedule.
        """
        allotment = self._allotment()
        if self._store is not None and allotment is not None:
            self._store.allot(allotment, fingerprint=self._fingerprint, limit=self._half.plan.ledger.max_epsilon)
            self.charges = self._booked({event.digest: count for event, count in self._store.charged(self._run)})

    def reserve(self, round_number: int, purpose: Purpose, event: AnyEvent | None) -> Hold | None:
        """Charge one release before it is computed; None where nothing is charged.

        Raises:
            BudgetExceeded: If the run's allotment does not hold it any more.
            StoreError: If the ledger cannot be read, trusted or written.
        """
        if self._store is None or event is None:
            return None
        hold = self._store.reserve(self._run, round_number, purpose, event, reuse_open=self._reproducible)
        if purpose == "update":
            self.charges[self._half.phase(round_number).index] += not hold.reused
        return hold

    def forward(self, round_number: int, purpose: Purpose, model_digest: str) -> None:
        """Refuse a round before the newest: a task that came late must not be answered anew, nor replace what is kept.

        Under a secure sum also another model of a round that was scored: two sums of the same answers, less one, would show
        that one.

        Raises:
            ProtocolError: If a later round was answered, or this one was scored with another model.
        """
        if self._store is None:
            return
        # Kept by itself under a secure sum: scores that are public are sealed by nobody.
        if purpose == "evaluation" and self._half.secure is not None:
            forward = self._store.sessions.advance(self._run, "scored", round_number, bytes.fromhex(model_digest))
        else:
            forward = round_number >= self._store.newest_round(self._run, purpose)
        if not forward:
            raise ProtocolError.of(f"site {self._half.terms.name}", needs="a round after those it answered, with one model each",
                                   got=f"{purpose} of round {round_number}", hint="Rounds only go forward")  # fmt: skip

    def close(self, status: str) -> str | None:
        """Record that the run ended, and drop what its secure sums kept secret; return the ledger's head, if it was charged.

        Raises:
            StoreError: If the file cannot be read, trusted or written.
        """
        if self._store is None:
            return None
        if self._half.secure is not None:
            self._store.sessions.forget(self._run)
        return self._store.close_run(self._run, status) if self._half.charge.booked else None

    def _booked(self, charged: dict[str, int]) -> list[int]:
        """Return what the ledger holds of each phase; phases of one mechanism fill up in their order."""
        found = []
        for phase, event in zip(self._half.terms.phases, self._half.charge.round_events, strict=True):
            name = event.digest if event is not None else ""
            count = min(phase.participations, charged.get(name, 0))
            charged[name] = charged.get(name, 0) - count
            found.append(count)
        return found

    def _allotment(self) -> Allotment | None:
        charge, plan = self._half.charge, self._half.plan
        if not charge.booked:
            return None
        # Noise that anyone can recompute bounds nothing: what such a run releases counts as unbounded.
        bound = None if plan.run.reproducible else charge.epsilon[self._half.against]
        return Allotment(
            self._run, self._half.population, self._half.events, math.inf if bound is None else bound,
            plan.privacy.delta or 0.0, self._half.adjacency, self._half.against, within=self._half.within,
        )  # fmt: skip
