"""DER, as far as certificates need it: definite, shortest lengths only, every step bounded.

Source: ITU-T X.690 (2021), sections 8.1 and 10.1.
"""

import calendar
from dataclasses import dataclass

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation.refusal import refuse

BOOLEAN, INTEGER, BIT_STRING, OCTET_STRING, OID = 0x01, 0x02, 0x03, 0x04, 0x06
UTC_TIME, GENERALIZED_TIME, SEQUENCE = 0x17, 0x18, 0x30
_LENGTH_BYTES = 3  # up to 16 MB, far above any certificate


@dataclass
class Der:
    """A cursor over the elements between `at` and `end` of one buffer."""

    data: bytes
    at: int
    end: int

    @classmethod
    def of(cls, data: bytes) -> "Der":
        """Start at the beginning of a buffer."""
        return cls(data, 0, len(data))

    def more(self) -> bool:
        """Say whether anything is left."""
        return self.at < self.end

    def next_is(self, tag: int) -> bool:
        """Say whether the next element has this tag."""
        return self.more() and self.data[self.at] == tag

    def enter(self, tag: int) -> "Der":
        """Step over the next element, which must have this tag, and return a cursor over its contents.

        Raises:
            ProtocolError: If it has another tag, is cut, or is not encoded the one way DER allows.
        """
        if not self.next_is(tag) or self.at + 2 > self.end:
            raise _malformed(f"an element of tag {tag:#04x}")
        length, start = self.data[self.at + 1], self.at + 2
        if length >= 0x80:
            count = length - 0x80
            raw = self.data[start : min(start + count, self.end)]
            length = int.from_bytes(raw, "big")
            start += count
            if not 1 <= count <= _LENGTH_BYTES or len(raw) != count or raw[0] == 0 or length < 0x80:
                raise _malformed("the shortest form of a length")
        if start + length > self.end:
            raise _malformed(f"an element of {length} bytes")
        self.at = start + length
        return Der(self.data, start, self.at)

    def whole(self, tag: int) -> bytes:
        """Step over the next element and return it with its tag and length."""
        start = self.at
        self.enter(tag)
        return self.data[start : self.at]

    def value(self, tag: int) -> bytes:
        """Step over the next element and return its contents."""
        inner = self.enter(tag)
        return inner.data[inner.at : inner.end]

    def integer(self) -> int:
        """Return an INTEGER, which may be negative."""
        raw = self.value(INTEGER)
        if not raw or (len(raw) > 1 and raw[0] in (0, 0xFF) and (raw[0] ^ raw[1]) < 0x80):
            raise _malformed("the shortest form of a number")
        return int.from_bytes(raw, "big", signed=True)

    def bits(self) -> bytes:
        """Return a BIT STRING of whole bytes."""
        raw = self.value(BIT_STRING)
        if not raw or raw[0] != 0:
            raise _malformed("a bit string of whole bytes")
        return raw[1:]

    def time(self) -> int:
        """Return a UTCTime or GeneralizedTime in seconds since 1970. Source: RFC 5280, section 4.1.2.5."""
        short = self.next_is(UTC_TIME)
        raw = self.value(UTC_TIME if short else GENERALIZED_TIME)
        if len(raw) != (13 if short else 15) or raw[-1:] != b"Z" or not raw[:-1].isdigit():
            raise _malformed("a time in seconds and UTC")
        digits = raw[:-1].decode()
        if short:
            digits = ("19" if digits >= "5" else "20") + digits
        year, *rest = int(digits[:4]), *(int(digits[i : i + 2]) for i in range(4, 14, 2))
        month, day, hour, minute, second = rest
        if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(max(year, 1), month)[1] and hour < 24
                and minute < 60 and second < 60 and year > 0):  # fmt: skip
            raise _malformed("a time that exists")
        return calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))

    def finish(self) -> None:
        """Refuse elements that nothing claims."""
        if self.more():
            raise _malformed("no more elements")


def _malformed(needs: str) -> ProtocolError:
    return refuse("certificate", needs=needs, got="bytes that are no DER of it")
