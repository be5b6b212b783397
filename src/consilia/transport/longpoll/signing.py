"""Signatures over HTTPS requests and answers, and sessions that no recorded bytes can enter again.

An inspecting proxy ends TLS and starts it anew: it strips the client's certificate and could change or repeat what it sees.
So each request carries the member's Ed25519 signature and each answer the coordinator's, over everything that counts in them.
A session's nonce is drawn by the coordinator, and a request's number must be larger than the last one of its method: recorded
requests are refused in this session and in any other, and no clock is trusted.

What stays open: such a proxy reads what passes. It belongs to the member's own house, and a secure sum's vectors are masked.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import TransportError
from consilia.crypto.signing import SigningKey, verify

NONCE = 32  # bytes
MOST_SESSIONS = 4  # of a member, used or not
_REQUEST, _ANSWER = b"consilia longpoll request 1\n", b"consilia longpoll answer 1\n"

Method = Literal["GET", "POST"]


@dataclass(frozen=True)
class Request:
    """What a member signs.

    Attributes:
        method, path: Of HTTP; the path with its query.
        session: The session's nonce; to open one, a nonce of the member's own.
        number: Larger than that of the session's last request of this method; 0 to open a session.
        body: The content.
        coordinator: Public key of the coordinator it is meant for.
    """

    method: Method
    path: str
    session: bytes
    number: int
    body: bytes
    coordinator: bytes

    def sign(self, key: SigningKey) -> bytes:
        """Return the member's signature."""
        return key.sign(self._text)

    def signed_by(self, public: bytes, signature: bytes) -> bool:
        """Return True if this member signed exactly this."""
        return verify(public, signature, self._text)

    @property
    def _text(self) -> bytes:
        digest = hashlib.sha256(self.body).hexdigest()
        return _REQUEST + canonical_bytes(
            [self.method, self.path, self.session.hex(), self.number, digest, self.coordinator.hex()]
        )

    def answer(self, status: int, body: bytes, key: SigningKey) -> bytes:
        """Return the coordinator's signature over its answer to this request."""
        return key.sign(self._answer_text(status, body))

    def answered_by(self, public: bytes, status: int, body: bytes, signature: bytes) -> bool:
        """Return True if the coordinator answered exactly this request with exactly these bytes."""
        return verify(public, signature, self._answer_text(status, body))

    def _answer_text(self, status: int, body: bytes) -> bytes:
        return _ANSWER + hashlib.sha256(self._text).digest() + b"%d\n" % status + hashlib.sha256(body).digest()


@dataclass
class Session:
    """One member's session.

    Attributes:
        member: Its name.
        nonce: Drawn by the coordinator.
        heard: Monotonic seconds of its last request.
        last: Method -> number of the last request.
    """

    member: str
    nonce: bytes
    heard: float
    last: dict[str, int] = field(default_factory=dict)


class Sessions:
    """Who may send requests, at the coordinator.

    Args:
        public: Public key of a member by name; None for who is none (any more).
        coordinator: The coordinator's own public key.
        draw: Random bytes.
        closed: Called with a session that ended.

    Guarantees:
        A request passes at most once, in the session it was signed for, and only while its member is one. Opening a session
        anew, or repeating a recorded opening, ends no session in use: that takes a request signed in the new one.
    """

    def __init__(
        self, public: Callable[[str], bytes | None], *, coordinator: bytes, draw: Callable[[int], bytes],
        closed: Callable[[Session], None],
    ) -> None:  # fmt: skip
        self._public = public
        self._coordinator = coordinator
        self._draw = draw
        self._closed = closed
        self._open: dict[bytes, Session] = {}

    def open(self, member: str, request: Request, signature: bytes, now: float) -> Session:
        """Open a session for a member that asks for it.

        Raises:
            TransportError: If it is no member, or did not sign this.
        """
        self._require(member, request, signature)
        if request.number != 0 or len(request.session) != NONCE:
            raise _refusal("a nonce and number 0 to open a session", "another request")
        unused = [one for one in self._open.values() if one.member == member and not one.last]
        for session in unused[: max(0, len(unused) + 1 - MOST_SESSIONS)]:
            self.close(session)
        session = Session(member, self._draw(NONCE), now)
        self._open[session.nonce] = session
        return session

    def admit(self, request: Request, signature: bytes, now: float) -> Session:
        """Let a request pass; the first one of a session ends the member's other sessions.

        Raises:
            TransportError: If its session is unknown, its number is not larger than the last, or its member did not sign it.
        """
        session = self._open.get(request.session)
        if session is None:
            raise _refusal("a session that is open", "one that is over or was never opened")
        self._require(session.member, request, signature)
        if request.number <= session.last.get(request.method, 0):
            raise _refusal("a number larger than the last one", "a request that was sent before")
        if not session.last:
            for other in [one for one in self._open.values() if one.member == session.member and one is not session]:
                self.close(other)
        session.last[request.method] = request.number
        session.heard = now
        return session

    def close(self, session: Session) -> None:
        """End a session."""
        if self._open.pop(session.nonce, None) is not None:
            self._closed(session)

    def expire(self, before: float) -> None:
        """End the sessions that were last heard of before this moment."""
        for session in [one for one in self._open.values() if one.heard < before]:
            self.close(session)

    def close_all(self) -> None:
        """End every session."""
        for session in list(self._open.values()):
            self.close(session)

    def _require(self, member: str, request: Request, signature: bytes) -> None:
        public = self._public(member)
        if public is None:
            raise _refusal("a member of the consortium", "one that its roster does not name, or names as revoked")
        if request.coordinator != self._coordinator or not request.signed_by(public, signature):
            raise _refusal("the member's signature over exactly this request", "another")


def _refusal(needs: str, got: str) -> TransportError:
    return TransportError.of("the coordinator", needs=needs, got=got,
                             hint="Open a new session; if that fails, compare the rosters of both ends")  # fmt: skip
