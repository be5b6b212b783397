"""How a clause that does not hold is said, and reading of untrusted bytes that says it."""

from dataclasses import dataclass

from consilia.core.errors import ProtocolError

_HINT = "Send nothing: ask the coordinator for fresh evidence of the machine and the code that the policy names"


def refuse(clause: str, *, needs: str, got: object, hint: str = _HINT) -> ProtocolError:
    """Return the error for one clause of a verification, to be raised."""
    return ProtocolError.of(f"Attestation, {clause}:", needs=needs, got=got, hint=hint)


@dataclass
class Reader:
    """A cursor over big-endian bytes of a peer; every step past the end is a refusal, never an index error."""

    data: bytes
    clause: str
    at: int = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if size > len(self.data) - self.at:
            raise refuse(self.clause, needs=f"{size} more bytes", got=len(self.data) - self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        """Return an unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size), "big")

    def sized(self, *, width: int, limit: int) -> bytes:
        """Return a field that a length of `width` bytes stands before, at most `limit` bytes long."""
        size = self.number(width)
        if size > limit:
            raise refuse(self.clause, needs=f"a field of at most {limit} bytes", got=size)
        return self.take(size)

    def finish(self) -> None:
        """Refuse bytes that nothing claims."""
        if self.at != len(self.data):
            raise refuse(self.clause, needs="no bytes after the end", got=len(self.data) - self.at)
