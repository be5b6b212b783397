"""A signed record of rounds, by which sites can find out afterwards whether the coordinator kept to what it said.

Guarantees:
    A site that checks every entry knows, if the hash and the signature hold: its masked vector is the one that was counted;
    the survivors are those it voted for; the model it trained on, the sum's hash and the model it gets next stand in one chain
    of which the coordinator can change nothing later without contradicting its own signature.
    Not covered: that the next model was computed from the sum as the plan says (the sum itself is not published, only its
    hash; someone given the sum can check both), and that all sites were shown the same chain: they must compare heads among
    themselves, which any two honest ones can do with one hash. A coordinator that shows no entry at all has proved nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from consilia.core.canonical import Json, canonical_bytes, digest_bytes
from consilia.core.errors import Problem, ProtocolError
from consilia.core.ring import Ring, Words
from consilia.crypto.signing import SigningKey, verify
from consilia.secagg.params import Session

_PURPOSE = b"consilia transcript 1\n"
_WHO = "the transcript"
_HINT = "Keep both and show them to the consortium: the coordinator signed them"


@dataclass(frozen=True)
class Entry:
    """One round.

    Attributes:
        run: The run's id.
        round: Number of the round.
        context: Hex of the session's context.
        model_in: Hex digest of the model that the sites started from.
        uploads: SHA-256 of each survivor's masked vector as it came, by name; their names are the survivors.
        total: SHA-256 of the sum, packed.
        model_out: Hex digest of the next model.
        previous: Hash of the entry before, or of the run's name for the first.
        signature: By the coordinator.
    """

    run: str
    round: int
    context: str
    model_in: str
    uploads: Mapping[str, str]
    total: str
    model_out: str
    previous: str
    signature: bytes = b""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all but the signature, in hex: the head of the chain after this entry."""
        return digest_bytes(self.text)

    @property
    def text(self) -> bytes:
        """What the coordinator signs."""
        plain = self.to_json()
        del plain["signature"]
        return _PURPOSE + canonical_bytes(plain)

    def to_json(self) -> dict[str, Json]:
        """Return a plain value that `from_json` reads."""
        return {
            "run": self.run, "round": self.round, "context": self.context, "model_in": self.model_in,
            "uploads": dict(self.uploads), "total": self.total, "model_out": self.model_out, "previous": self.previous,
            "signature": self.signature.hex(),
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: object) -> "Entry":
        """Read what `to_json` returned.

        Raises:
            ProtocolError: If it is no entry.
        """
        texts = ("run", "context", "model_in", "total", "model_out", "previous", "signature")
        try:
            if not isinstance(value, dict) or set(value) != {*texts, "round", "uploads"}:
                raise TypeError
            uploads = value["uploads"]
            if not isinstance(uploads, dict) or type(value["round"]) is not int:
                raise TypeError
            if not all(isinstance(text, str) for text in (*uploads.values(), *(value[name] for name in texts))):
                raise TypeError
            entry = cls(**{**value, "uploads": dict(uploads), "signature": bytes.fromhex(value["signature"])})
            canonical_bytes(entry.to_json())  # or it could be neither hashed nor checked
            return entry
        except (TypeError, ValueError):
            raise ProtocolError.of(_WHO, needs="an entry with its nine fields", got="something else",
                                   hint="Both ends must run compatible versions") from None  # fmt: skip


@dataclass(frozen=True)
class Witness:
    """What a site remembers of a session it took part in.

    Attributes:
        context: Hex of the session's context.
        model: Hex digest of the model that it started from.
        upload: SHA-256 of the masked vector that it sent, in hex.
        survivors: Whom it voted for.
    """

    context: str
    model: str
    upload: str
    survivors: tuple[str, ...]


def first(run: str) -> str:
    """Return what stands before a run's first entry."""
    return digest_bytes(_PURPOSE + run.encode())


def write(
    session: Session,
    *,
    uploads: Mapping[str, str],
    total: Words,
    model_out: str,
    previous: str,
    coordinator: SigningKey,
) -> Entry:
    """Return the signed entry of a session that came to a sum.

    Args:
        session: The session.
        uploads: As the server reported them.
        total: The sum, shape (dim,).
        model_out: Hex digest of the model made from it.
        previous: Hash of the last entry, or `first` of the run.
        coordinator: The coordinator's key.
    """
    entry = Entry(session.run, session.round, session.context.hex(), session.model_digest, dict(uploads),
                  total_hash(session.ring, total), model_out, previous)  # fmt: skip
    return replace(entry, signature=coordinator.sign(entry.text))


def total_hash(ring: Ring, total: Words) -> str:
    """Return the hash of a sum, in hex."""
    return digest_bytes(ring.pack(total))


def check(
    entry: Entry, *, run: str, coordinator: bytes, last: Entry | None, site: str, witness: Witness | None, model: str
) -> None:
    """Check the newest entry.

    Args:
        entry: What the coordinator showed.
        run: The run's id.
        coordinator: Its public Ed25519 key, from the site's own configuration.
        last: The entry this site checked before, or None if there was none.
        site: The site's name.
        witness: What the site remembers of the session, or None if its vector was not in it.
        model: Hex digest of the model that the site was given after it.

    Raises:
        ProtocolError: Naming everything that does not fit.
    """
    before = first(run) if last is None else last.hash
    rows = [
        ("the coordinator's signature", verify(coordinator, entry.signature, entry.text), "another"),
        (f"run {run}", entry.run == run, entry.run),
        ("the entry before to be the one this site has checked", entry.previous == before, "another"),
        ("rounds that go up", last is None or entry.round > last.round, f"round {entry.round}"),
        ("each round to start from the model before", last is None or entry.model_in == last.model_out, "another"),
        ("the model this site was given next", entry.model_out == model, "another"),
    ]
    if witness is None:
        rows.append(("no vector of this site, which sent none", site not in entry.uploads, "one"))
    else:
        rows += [
            ("the session this site took part in", entry.context == witness.context, "another"),
            ("the model this site trained on", entry.model_in == witness.model, "another"),
            ("the vector this site sent", entry.uploads.get(site) == witness.upload, "another or none"),
            ("the survivors this site voted for", tuple(sorted(entry.uploads)) == witness.survivors, "others"),
        ]
    problems = [Problem(_WHO, needs, got, _HINT) for needs, holds, got in rows if not holds]
    if problems:
        raise ProtocolError(problems)
