"""A site's ledger on disk: reserve, seal and commit, then send.

Guarantees:
    A charge is on disk before anything that depends on data may be computed for it, and counts as spent
    whether or not it is ever committed. A sealed release and its commit are one transaction. What is allotted
    counts as spent from the moment a run is admitted, over all runs of a population, in whatever order
    processes race: every decision is taken under the database's write lock, on the chain as it then stands.
    So a kill at any moment never under-counts.
    Not covered: a disk that is rolled back as a whole. Compare with a head kept elsewhere (`verify`).
"""

import math
from dataclasses import dataclass
from typing import Literal, cast

from sqlalchemy import Connection

from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import PlanError, StoreError
from consilia.dp import ledger
from consilia.dp.chain import Kind
from consilia.dp.event import AnyEvent
from consilia.dp.ledger import Allotment
from consilia.store import kept
from consilia.store.crash import crash_point
from consilia.store.engine import reading, writing
from consilia.store.kept import Sealed
from consilia.store.ledger_view import LedgerView

Purpose = Literal["update", "evaluation"]


@dataclass(frozen=True)
class Hold:
    """A charge that is on disk: permission to compute one release.

    Attributes:
        population: Whose chain it is in.
        run: Name of the run.
        round: Number of the round, from 1.
        purpose: What the release is for.
        event: The mechanism that was charged.
        index: Place of the reserve entry in the chain.
        head: Hash of the chain's last entry when the hold was taken.
        reused: True for an open hold of an earlier process, taken up again without a new charge.
    """

    population: str
    run: str
    round: int
    purpose: Purpose
    event: AnyEvent
    index: int
    head: str
    reused: bool


class SiteStore(LedgerView):
    """One site's ledger: all its populations and runs, in one file that several processes may share."""

    def allot(self, allotment: Allotment, *, fingerprint: str, limit: float | None) -> str:
        """Admit a run, or find it admitted already with the same allotment; return the chain's head.

        Args:
            allotment: The most the run may charge; counts as spent from now on.
            fingerprint: Of the data; recorded, under a key of this site's own, with each of the run's charges.
            limit: The plan's limit for the population over all runs; None where it sets none. The smallest limit that
                the ledger was given counts, unless the steward set another since (`set_limit`).

        Raises:
            BudgetExceeded: If it does not fit; nothing was written.
            StoreError: If it is a trial of a search that was closed, or the ledger cannot be read, trusted or written.
        """
        with self._lock, writing(self._engine, self._who, "ledger.allot") as connection:
            known = self._chains.population(connection, allotment.run)
            if known is not None and known != allotment.population:
                raise StoreError.of(
                    self._who, needs=f"run {allotment.run!r} to keep its population {known!r}",
                    got=repr(allotment.population), hint="Give the changed plan a new run",
                )  # fmt: skip
            fingerprint = self._key.digest(connection, fingerprint)
            standing = self._chains.refresh(connection, allotment.population)
            if allotment.within is not None and allotment.run not in standing.runs:
                self._chains.running(connection, allotment.within)
            allotted = [run.allotment for run in standing.runs.values()]
            ledger.admit(allotted, allotment, standing.lowered(limit))
            head = standing.head
            if allotment.run not in standing.runs:
                body: dict[str, Json] = {
                    "allotment": allotment.to_json(),
                    "fingerprint": fingerprint,
                    "limit": limit,
                }
                head = self._chains.append(connection, standing.next(Kind.ALLOT, allotment.run, 0, body))
        self._fingerprints[allotment.run] = fingerprint
        return head

    def set_limit(self, population: str, epsilon: float | None) -> str:
        """Set the epsilon that a population is held to over all runs from now on, or None for no limit; return the chain's head.

        The steward's word: it may raise the limit, which no plan can. Runs admitted before go on.

        Raises:
            PlanError: If it is not a finite number above 0.
            StoreError: If the ledger cannot be read, trusted or written.
        """
        if epsilon is not None and not 0 < epsilon < math.inf:
            raise PlanError.of(f"the limit of population {population!r}", needs="a finite number above 0",
                               got=f"{epsilon:g}", hint="Give the epsilon that all its runs may sum up to")  # fmt: skip
        with self._lock, writing(self._engine, self._who, "ledger.limit") as connection:
            standing = self._chains.refresh(connection, population)
            return self._chains.append(connection, standing.next(Kind.LIMIT, "", 0, {"limit": epsilon}))

    def reserve(self, run: str, round: int, purpose: Purpose, event: AnyEvent, *, reuse_open: bool) -> Hold:
        """Charge one release before it is computed. The charge is on disk when this returns.

        Args:
            run: Name of the run, admitted before.
            round: Number of the round.
            purpose: What the release is for.
            event: The mechanism about to run.
            reuse_open: Reproducible mode only, where computing again gives the same bytes: take up the open
                hold of a killed process. With fresh noise a second computation is charged again.

        Raises:
            BudgetExceeded: If the run's allotment does not hold this event any more; nothing was charged.
            StoreError: If the run is unknown or closed, or the ledger cannot be read, trusted or written.
        """
        with self._lock, writing(self._engine, self._who, "ledger.reserve") as connection:
            standing, state = self._chains.running(connection, run)
            if reuse_open and (entry := state.open_hold(round, purpose, event)) is not None:
                head = standing.head
                return Hold(standing.population, run, round, purpose, event, entry.index, head, reused=True)
            ledger.admit_charge(state.allotment, state.charged, event)
            fingerprint = self._fingerprints.get(run, state.fingerprint)
            body: dict[str, Json] = {"purpose": purpose, "event": event.to_json(), "fingerprint": fingerprint}
            entry = standing.next(Kind.RESERVE, run, round, body)
            head = self._chains.append(connection, entry)
        return Hold(standing.population, run, round, purpose, event, entry.index, head, reused=False)

    def commit(
        self,
        hold: Hold,
        *,
        release: bytes,
        model_digest: str,
        local_state: bytes | None,
        counted: int | None = None,
        round: int | None = None,
    ) -> str:
        """Seal a release and commit its charge in one transaction, before its first byte is sent.

        The run's update that waited to be released waits no longer: it is released once.

        Args:
            hold: The charge it was computed under.
            release: The bytes to send; found again by `sealed`.
            model_digest: The global model it started from.
            local_state: What the site keeps for later rounds, pending until the round counts; None: nothing.
            counted: The last round that counted for this site: its state is kept beside the new one and those
                of rounds that did not count are dropped. The round before when absent.
            round: The round that the release is for, where it was charged in an earlier one.

        Returns:
            The chain's head.

        Raises:
            StoreError: If the hold is not open, or the ledger cannot be read, trusted or written.
        """
        release_digest = digest_bytes(release)
        with self._lock, writing(self._engine, self._who, "ledger.commit") as connection:
            standing, state = self._chains.running(connection, hold.run)
            held = state.open.get(hold.index)
            if held is None:
                raise StoreError.of(
                    self._who, needs=f"an open hold at entry {hold.index}", got="another",
                    hint="Send the sealed release again, or reserve anew",
                )  # fmt: skip
            purpose = cast("Purpose", held.body["purpose"])
            body: dict[str, Json] = {
                "reserve": held.index,
                "purpose": purpose,
                "release": self._key.digest(connection, release_digest),
                "model": model_digest,
            }
            entry = standing.next(Kind.COMMIT, held.run, held.round, body)
            head = self._chains.append(connection, entry)
            crash_point("ledger.commit.charged")
            self._keep(
                connection, held.run, purpose, held.round if round is None else round, release, release_digest, model_digest,
                entry.index, local_state, counted,
            )  # fmt: skip
        return head

    def seal_free(
        self,
        run: str,
        round: int,
        *,
        release: bytes,
        model_digest: str,
        local_state: bytes | None,
        counted: int | None = None,
    ) -> None:
        """Seal a release of a run that charges nothing: the same durability, no entry in the chain.

        Raises:
            StoreError: If the run has an allotment (it must reserve), or the file cannot be written.
        """
        with self._lock, writing(self._engine, self._who, "ledger.seal") as connection:
            if self._chains.population(connection, run) is not None:
                raise StoreError.of(
                    self._who, needs=f"a charge for run {run!r}: it has an allotment", got="none",
                    hint="Reserve, then commit",
                )  # fmt: skip
            self._keep(connection, run, "update", round, release, digest_bytes(release), model_digest, None,
                       local_state, counted)  # fmt: skip

    def sealed(self, run: str, round: int, purpose: Purpose = "update") -> Sealed | None:
        """Return the release sealed for this round, byte for byte, or None.

        Raises:
            StoreError: If the bytes are not those that the chain's commit names, or the run was closed and its last
                update is asked for again: under noise at the server a second sum of the same answers is a second release.
        """
        with self._lock, reading(self._engine, self._who) as connection:
            found = kept.get_sealed(connection, self._who, run=run, purpose=purpose, round=round)
            if found is None:
                return None
            release, release_digest, position = found
            population = self._chains.population(connection, run)
            if population is not None or position is not None:
                state = self._chains.refresh(connection, population).run(run) if population else None
                if state is not None and state.closed is not None and purpose == "update":
                    raise StoreError.of(
                        self._who, needs=f"run {run!r} to be open", got=f"one closed as {state.closed!r}",
                        hint="It ended elsewhere: this folder is a copy, or was restored; start a new run",
                    )  # fmt: skip
                entry = state.commits.get(purpose) if state is not None else None
                named = entry is not None and entry.index == position
                if entry is None or not named or not self._key.fits(connection, release_digest, entry.body["release"]):
                    raise StoreError.of(
                        self._who, needs=f"a commit of the sealed release of run {run!r}, round {round}",
                        got="none in the chain", hint="Do not send it: restore the file from a copy",
                    )  # fmt: skip
            return release

    def local_state(self, run: str, round: int) -> bytes | None:
        """Return the newest state kept for a round <= `round`, or None.

        Raises:
            StoreError: If the bytes changed on disk.
        """
        with self._lock, reading(self._engine, self._who) as connection:
            return kept.get_state(connection, self._who, run=run, round=round)

    def close_run(self, run: str, status: str) -> str | None:
        """Record that a run ended; nothing is refunded. Closed again, the first status stands.

        Returns:
            The chain's head; None for a run without an allotment, which has no entry to close.

        Raises:
            StoreError: If the ledger cannot be read, trusted or written.
        """
        with self._lock, writing(self._engine, self._who, "ledger.close") as connection:
            population = self._chains.population(connection, run)
            if population is None:
                return None
            standing = self._chains.refresh(connection, population)
            if standing.run(run).closed is not None:
                return standing.head
            return self._chains.append(connection, standing.next(Kind.CLOSE, run, 0, {"status": status}))

    def forget(self, run: str) -> None:
        """Drop the bytes kept of a run that ended: its newest sealed release and its local state. The chain stays whole.

        Raises:
            StoreError: If the run is open, or the file cannot be written.
        """
        with self._lock, writing(self._engine, self._who, "ledger.forget") as connection:
            population = self._chains.population(connection, run)
            if population is not None and self._chains.refresh(connection, population).run(run).closed is None:
                raise StoreError.of(self._who, needs=f"run {run!r} to be closed", got="an open one",
                                    hint="Close it first: its sealed release may still be asked for")  # fmt: skip
            kept.drop(connection, run=run)

    def _keep(
        self, connection: Connection, run: str, purpose: Purpose, round: int, release: bytes,
        release_digest: str, model_digest: str, position: int | None, local_state: bytes | None,
        counted: int | None,
    ) -> None:  # fmt: skip
        kept.put_sealed(
            connection, run=run, purpose=purpose, round=round, release=release, release_digest=release_digest,
            model_digest=model_digest, position=position,
        )  # fmt: skip
        if local_state is not None:
            counted = round - 1 if counted is None else counted
            kept.put_state(connection, run=run, round=round, state=local_state, counted=counted)
