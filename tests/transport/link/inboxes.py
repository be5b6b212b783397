"""An inbox for tests whose processes are not killed: the rules, without a disk."""

from consilia.core.errors import ProtocolError


class MemoryInbox:
    """Remembers messages for as long as the object lives, so over restarts of a courier that is given it again."""

    def __init__(self) -> None:
        self.digests: dict[bytes, bytes] = {}
        self.answers: dict[bytes, bytes] = {}

    def seen(self, id: bytes, digest: bytes) -> bytes | None:
        if self.digests.get(id, digest) != digest:
            raise ProtocolError.of("the inbox", needs="one message under an id", got="another", hint="Report it")
        return self.answers.get(id)

    def begin(self, id: bytes, digest: bytes) -> None:
        self.digests[id] = digest

    def keep(self, id: bytes, answer: bytes) -> None:
        self.answers[id] = answer
