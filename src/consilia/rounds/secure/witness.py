"""What a site does with the coordinator's signed entries: it checks each, keeps it, and stops where one does not fit."""

import json
from collections.abc import Callable

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import Problem, ProtocolError, StoreError
from consilia.crypto.signing import verify
from consilia.rounds.secure.sessions import Party
from consilia.secagg import transcript
from consilia.secagg.transcript import Entry, Witness
from consilia.store.sessions import Sessions


class Watch:
    """A site's eye on the transcript of one run.

    Args:
        run: Id of the run.
        party: The site's keys and whom it believes.
        store: Where entries are kept.
        remembered: round -> what this site sent in it and whom it voted for, nobody yet where it was not asked to; None where
            it sent nothing.

    Guarantees:
        A signed entry that contradicts what this site sent, voted for or was given makes it refuse every later session of the
        run, as long as its process lives; one that fits could only come after it. An entry that the coordinator did not sign
        costs the session that it came with.
        What an entry proves, and what not: `secagg.transcript`.
    """

    def __init__(self, run: str, party: Party, store: Sessions, remembered: Callable[[int], Witness | None]) -> None:
        self._run = run
        self._party = party
        self._store = store
        self._remembered = remembered
        self._broken: tuple[Problem, ...] = ()
        self._last: Entry | None = None
        for raw in store.transcript(run):
            self._last = _read(raw)

    def check(self, entries: object, model_digest: str | None) -> None:
        """Check the entries that come with a step, oldest first; those checked before may come again.

        Args:
            entries: As they came.
            model_digest: The model that the step is about, where it is the one made by the last entry.

        Raises:
            ProtocolError: If one does not fit; it is not kept.
        """
        if self._broken:
            # A fresh error: one that is raised again holds on to every frame that it was ever raised in.
            raise ProtocolError(self._broken)
        if not isinstance(entries, list):
            raise ProtocolError.of(f"site {self._party.identity.name}", needs="the transcript as a list of entries",
                                   got=type(entries).__name__, hint="Both ends must run compatible versions")  # fmt: skip
        read = [Entry.from_json(entry) for entry in entries]
        fresh = [entry for entry in read if self._last is None or entry.round > self._last.round]
        for entry in fresh:
            given = model_digest if entry is fresh[-1] and model_digest is not None else entry.model_out
            try:
                transcript.check(
                    entry, run=self._run, coordinator=self._party.coordinator, last=self._last,
                    site=self._party.identity.name, witness=self._witness(entry), model=given,
                )  # fmt: skip
            except ProtocolError as error:
                # Without its signature the coordinator has said nothing: the bytes were damaged, or are somebody else's.
                if verify(self._party.coordinator, entry.signature, entry.text):
                    self._broken = tuple(error.problems)
                raise
            self._store.note(self._run, entry.round, canonical_bytes(entry.to_json()))
            self._last = entry

    def _witness(self, entry: Entry) -> Witness | None:
        mine = self._remembered(entry.round)
        if mine is None or mine.survivors:
            return mine
        # Its vector left, and it was never asked to vote: the coordinator may have had it, or not.
        named = self._party.identity.name in entry.uploads
        return Witness(mine.context, mine.model, mine.upload, tuple(sorted(entry.uploads))) if named else None


def _read(raw: bytes) -> Entry:
    try:
        return Entry.from_json(json.loads(raw))
    except (ValueError, RecursionError, ProtocolError):
        raise StoreError.of("the transcript that this site keeps", needs="entries as they were written", got="other bytes",
                            hint="They changed on disk: restore the site's file from a copy") from None  # fmt: skip
