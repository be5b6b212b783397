"""Bytes a site keeps beside its ledger: the newest sealed release of a run, and its local state by round.

Every blob stands beside its SHA-256 and is checked when read: a release found again is the one committed.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from consilia.core.canonical import digest_bytes
from consilia.core.errors import StoreError
from consilia.store import prepared
from consilia.store.tables import local_states, sealed


@dataclass(frozen=True)
class Sealed:
    """A release as it was stored before its first byte was sent.

    Attributes:
        release: The bytes; a resend sends exactly these.
        model_digest: The global model the site had started from.
    """

    release: bytes
    model_digest: str


_put_sealed = insert(sealed)
_replace_sealed = update(sealed).where(sealed.c.run == bindparam("b_run"), sealed.c.purpose == bindparam("b_purpose"))
_get_sealed = select(sealed).where(
    sealed.c.run == bindparam("run"),
    sealed.c.purpose == bindparam("purpose"),
    sealed.c.round == bindparam("round"),
)
_put_state = insert(local_states)
_get_state = (
    select(local_states)
    .where(local_states.c.run == bindparam("run"), local_states.c.round <= bindparam("round"))
    .order_by(local_states.c.round.desc())
    .limit(1)
)
_state_before = select(func.max(local_states.c.round)).where(
    local_states.c.run == bindparam("run"), local_states.c.round <= bindparam("round")
)
_drop_states = delete(local_states).where(
    local_states.c.run == bindparam("b_run"), local_states.c.round != bindparam("b_kept")
)

_drop_sealed = delete(sealed).where(sealed.c.run == bindparam("b_run"))


def put_sealed(
    connection: Connection,
    *,
    run: str,
    purpose: str,
    round: int,
    release: bytes,
    release_digest: str,
    model_digest: str,
    position: int | None,
) -> None:
    """Store a release in place of the one of an earlier round; the update that it was made of waits no longer."""
    values = {
        "round": round, "model_digest": model_digest, "release_digest": release_digest, "position": position,
        "release": release,
    }  # fmt: skip
    # Overwritten in place: twice as fast for a large model as to delete and insert, and the file stays flat.
    replaced = connection.execute(_replace_sealed, {"b_run": run, "b_purpose": purpose, **values})
    if replaced.rowcount == 0:
        connection.execute(_put_sealed, {"run": run, "purpose": purpose, **values})
    if purpose == "update":
        prepared.drop(connection, run=run)


def get_sealed(
    connection: Connection, who: str, *, run: str, purpose: str, round: int
) -> tuple[Sealed, str, int | None] | None:
    """Return the release of this round with its digest and its commit's place in the chain, or None.

    Raises:
        StoreError: If the bytes are not those that were sealed.
    """
    row = connection.execute(_get_sealed, {"run": run, "purpose": purpose, "round": round}).one_or_none()
    if row is None:
        return None
    _check(who, f"the release of run {run!r}, round {round}", row.release, row.release_digest)
    return Sealed(row.release, row.model_digest), row.release_digest, row.position


def newest_round(connection: Connection, *, run: str, purpose: str) -> int:
    """Return the round of the newest release, 0 before the first."""
    found = connection.execute(select(sealed.c.round).where(sealed.c.run == run, sealed.c.purpose == purpose)).scalar()
    return int(found or 0)


def put_state(connection: Connection, *, run: str, round: int, state: bytes, counted: int) -> None:
    """Store the state of `round` beside the newest one of a round <= `counted`; drop all others."""
    kept = connection.execute(_state_before, {"run": run, "round": min(counted, round - 1)}).scalar_one()
    connection.execute(_drop_states, {"b_run": run, "b_kept": -1 if kept is None else kept})
    connection.execute(_put_state, {"run": run, "round": round, "digest": digest_bytes(state), "state": state})


def get_state(connection: Connection, who: str, *, run: str, round: int) -> bytes | None:
    """Return the newest state of a round <= `round`, or None.

    Raises:
        StoreError: If the bytes are not those that were stored.
    """
    row = connection.execute(_get_state, {"run": run, "round": round}).one_or_none()
    if row is None:
        return None
    _check(who, f"the local state of run {run!r}, round {row.round}", row.state, row.digest)
    return bytes(row.state)


def drop(connection: Connection, *, run: str) -> None:
    """Drop a run's sealed releases, its states of every round and the update that waits."""
    prepared.drop(connection, run=run)
    connection.execute(_drop_sealed, {"b_run": run})
    connection.execute(_drop_states, {"b_run": run, "b_kept": -1})


def _check(who: str, what: str, blob: bytes, expected: str) -> None:
    found = digest_bytes(blob)
    if found != expected:
        raise StoreError.of(
            who, needs=f"{what} with digest {expected[:12]}", got=found[:12],
            hint="The bytes changed on disk: restore the file from a copy",
        )  # fmt: skip
