"""What a site keeps of secure sums: its identity, where each sum stands, and what the coordinator signed.

Guarantees:
    A state is on disk before any byte that it produced is sent, so a site that was killed never answers a step of a sum
    twice with two different answers.
"""

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from consilia.core.canonical import digest_bytes
from consilia.core.errors import StoreError
from consilia.store.engine import reading, writing
from consilia.store.tables import sessions, site_key, transcripts

_IDENTITY = "identity"
_ID = 16
_BEGUN = ".begun"


class Sessions:
    """The part of a site's file that secure sums write to.

    Args:
        engine: The site's database.
        who: How errors name it.
    """

    def __init__(self, engine: Engine, who: str) -> None:
        self._engine = engine
        self._who = who

    def identity(self, fresh: bytes) -> bytes:
        """Return the site's secret identity; `fresh` becomes it where there is none yet.

        Raises:
            StoreError: If the file cannot be read or written.
        """
        with writing(self._engine, self._who, "identity") as connection:
            found = connection.execute(select(site_key.c.key).where(site_key.c.name == _IDENTITY)).scalar_one_or_none()
            if found is None:
                connection.execute(insert(site_key).values(name=_IDENTITY, key=fresh))
            return fresh if found is None else bytes(found)

    def keep(self, run: str, purpose: str, round_number: int, state: bytes) -> None:
        """Store where a sum stands, in place of the one of an earlier step or round.

        Args:
            run: The run.
            purpose: What the sum is for.
            round_number: The round.
            state: Its first 16 bytes are the session's id.

        Raises:
            StoreError: If the round stands in another session already, or a later one has begun (two processes of one site);
                or if the file cannot be written.
        """
        if not self.advance(run, purpose, round_number, state):
            raise StoreError.of(
                self._who, needs=f"one session for round {round_number} of run {run!r}", got="another, or a later round",
                hint="Two processes act for this site: end one",
            )  # fmt: skip

    def advance(self, run: str, purpose: str, round_number: int, state: bytes) -> bool:
        """Store as `keep` does, or return False where that would go back, or change the session of a round.

        Raises:
            StoreError: If the file cannot be written.
        """
        values = {"round": round_number, "digest": digest_bytes(state), "state": state}
        put = upsert(sessions).values(run=run, purpose=purpose, **values)
        chosen = select(sessions).where(sessions.c.run == run, sessions.c.purpose == purpose)
        with writing(self._engine, self._who, "session.keep") as connection:
            row = connection.execute(chosen).one_or_none()
            other = row is not None and row.round == round_number and row.state[:_ID] != state[:_ID]
            if row is not None and (row.round > round_number or other):
                return False
            connection.execute(put.on_conflict_do_update(index_elements=["run", "purpose"], set_=values))
            return True

    def begun(self, run: str, purpose: str, round_number: int, state: bytes) -> None:
        """Store where a sum stands that nothing has been given to: another session of the round may take its place.

        Raises:
            StoreError: If the file cannot be written.
        """
        values = {"round": round_number, "digest": digest_bytes(state), "state": state}
        put = upsert(sessions).values(run=run, purpose=purpose + _BEGUN, **values)
        with writing(self._engine, self._who, "session.begun") as connection:
            connection.execute(put.on_conflict_do_update(index_elements=["run", "purpose"], set_=values))

    def beginning(self, run: str, purpose: str, round_number: int) -> bytes | None:
        """Return where `begun` left the sum of this round, or None.

        Raises:
            StoreError: If the bytes changed on disk.
        """
        found = self.newest(run, purpose + _BEGUN)
        # After `forget` only the id is left.
        return found[1] if found is not None and found[0] == round_number and len(found[1]) > _ID else None

    def state(self, run: str, purpose: str, round_number: int) -> bytes | None:
        """Return where the sum of this round stands, or None if it has not begun here.

        Raises:
            StoreError: If the bytes changed on disk, or a later round has begun: there is no way back.
        """
        chosen = select(sessions).where(sessions.c.run == run, sessions.c.purpose == purpose)
        with reading(self._engine, self._who) as connection:
            row = connection.execute(chosen).one_or_none()
        if row is None or row.round < round_number:
            return None
        if row.round > round_number or not isinstance(row.state, bytes) or digest_bytes(row.state) != row.digest:
            raise StoreError.of(
                self._who, needs=f"the sum of round {round_number} of run {run!r} as it was left",
                got=f"round {row.round}" if row.round != round_number else "other bytes",
                hint="A round is summed once; ask for the next one",
            )  # fmt: skip
        return bytes(row.state)

    def newest(self, run: str, purpose: str) -> tuple[int, bytes] | None:
        """Return the newest round of a purpose and its state, or None before the first.

        Raises:
            StoreError: If the bytes changed on disk.
        """
        chosen = select(sessions).where(sessions.c.run == run, sessions.c.purpose == purpose)
        with reading(self._engine, self._who) as connection:
            row = connection.execute(chosen).one_or_none()
        if row is None:
            return None
        if not isinstance(row.state, bytes) or digest_bytes(row.state) != row.digest:
            raise StoreError.of(self._who, needs=f"the {purpose} of run {run!r} as it was left", got="other bytes",
                                hint="They changed on disk: restore the file from a copy")  # fmt: skip
        return int(row.round), row.state

    def forget(self, run: str) -> None:
        """Drop the secrets of a run's sums: with them and a recording of what was sent, the last update could be unmasked.

        Which rounds were summed, and in which session, stays: none is summed again.

        Raises:
            StoreError: If the file cannot be written.
        """
        with writing(self._engine, self._who, "session.forget") as connection:
            for row in connection.execute(select(sessions).where(sessions.c.run == run)).all():
                state = row.state[:_ID]
                chosen = update(sessions).where(sessions.c.run == run, sessions.c.purpose == row.purpose)
                connection.execute(chosen.values(state=state, digest=digest_bytes(state)))

    def note(self, run: str, round_number: int, entry: bytes) -> None:
        """Store the coordinator's signed entry of a round; the first one of a round stands.

        Raises:
            StoreError: If the file cannot be written.
        """
        put = upsert(transcripts).values(run=run, round=round_number, entry=entry).on_conflict_do_nothing()
        with writing(self._engine, self._who, "transcript.note") as connection:
            connection.execute(put)

    def transcript(self, run: str) -> list[bytes]:
        """Return a run's signed entries, in order.

        Raises:
            StoreError: If the file cannot be read.
        """
        chosen = select(transcripts.c.entry).where(transcripts.c.run == run).order_by(transcripts.c.round)
        with reading(self._engine, self._who) as connection:
            return [bytes(entry) for entry in connection.execute(chosen).scalars()]
