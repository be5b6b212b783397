"""Where a sum stands at a site, as bytes for its store: secret keys among them."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import StoreError
from consilia.secagg.client import State
from consilia.secagg.params import ID_SIZE, Session
from consilia.secagg.roster import Identity
from consilia.secagg.transcript import Witness

_DIGEST = 64  # hex digits
_LENGTH = 4  # bytes of the cohort's length


@dataclass(frozen=True)
class Sum:
    """Where a sum stands.

    Attributes:
        state: The site's side of the session.
        upload: Digest of the masked vector, in hex; empty until there is one.
    """

    state: State
    upload: str = ""

    @property
    def witness(self) -> Witness:
        """What the site can hold the coordinator's entry of the session against."""
        session = self.state.session
        return Witness(session.context.hex(), session.model_digest, self.upload, self.state.voted)

    def to_bytes(self) -> bytes:
        """Return session id, model, upload, cohort and state, for `from_bytes`."""
        session = self.state.session
        cohort = canonical_bytes(list(session.cohort))
        head = session.session_id + session.model_digest.encode() + self.upload.ljust(_DIGEST).encode()
        return head + len(cohort).to_bytes(_LENGTH, "big") + cohort + self.state.to_bytes()

    @classmethod
    def from_bytes(
        cls, raw: bytes, session: Callable[[str, bytes, tuple[str, ...]], Session], identity: Identity
    ) -> "Sum":
        """Read what `to_bytes` wrote.

        Args:
            raw: The bytes.
            session: (model digest, session id, cohort) -> the session.
            identity: The site's keys.

        Raises:
            StoreError: If they are of another session, or damaged.
        """
        head = ID_SIZE + 2 * _DIGEST
        try:
            model, upload = (
                raw[ID_SIZE : ID_SIZE + _DIGEST].decode("ascii"),
                raw[ID_SIZE + _DIGEST : head].decode("ascii").strip(),
            )
            end = head + _LENGTH + int.from_bytes(raw[head : head + _LENGTH], "big")
            cohort = tuple(str(name) for name in json.loads(raw[head + _LENGTH : end]))
        except (ValueError, TypeError):
            raise StoreError.of("the stored sum", needs="the bytes of a session", got="others",
                                hint="Restore the site's file from a copy") from None  # fmt: skip
        return cls(State.from_bytes(raw[end:], session(model, raw[:ID_SIZE], cohort), identity), upload)
