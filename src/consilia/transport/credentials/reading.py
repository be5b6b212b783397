"""Read plain values that somebody else wrote: every field checked, unknown ones refused, all faults told at once."""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import Problem, StoreError
from consilia.plan.faults import show

Kind = Callable[[object], Any]  # returns the value read, or raises ValueError with what is needed


class Reader:
    """Takes a document apart and keeps every fault.

    Attributes:
        who: What is read, for messages.
        problems: The faults so far.
        secret: Whether messages keep silent about what was read.
    """

    def __init__(self, who: str, *, secret: bool = False) -> None:
        self.who = who
        self.problems: list[Problem] = []
        self.secret = secret
        self._again = (
            "Restore the file from a copy" if secret else "Ask for the file again; it must arrive byte for byte"
        )

    def fault(self, needs: str, got: str, hint: str | None = None) -> None:
        """Note a fault."""
        self.problems.append(Problem(self.who, needs, got, self._again if hint is None else hint))

    def _show(self, value: object) -> str:
        return "something else" if self.secret else show(value)

    def check(self) -> None:
        """Raise all faults, if there are any.

        Raises:
            StoreError: With all of them.
        """
        if self.problems:
            raise StoreError(self.problems)

    def document(self, raw: bytes) -> object:
        """Return the value of canonical JSON; space around it is allowed, another spelling of the same value is not.

        Raises:
            StoreError: If it is something else.
        """
        try:
            value = json.loads(raw)
            if canonical_bytes(value) != raw.strip():
                self.fault("its bytes as they were written", "the same JSON, written differently")
        except (ValueError, RecursionError):
            self.fault("a JSON document", "something else, or a damaged one")
            value = None
        self.check()
        return value

    def table(self, value: object, kinds: Mapping[str, Kind], place: str = "") -> dict[str, Any] | None:
        """Return the fields of a table, or None after noting what is wrong with them."""
        if not isinstance(value, Mapping):
            self.fault(f"a table{_at(place)}", self._show(value))
            return None
        before = len(self.problems)
        for key in value.keys() - kinds.keys():
            self.fault("fields that this version knows", f"an unknown one, {self._show(f'{place}{key}')}",
                       "Update Consilia if the sender runs a newer version")  # fmt: skip
        found = {}
        for key, kind in kinds.items():
            if key not in value:
                self.fault(f"a field {place}{key}", "none")
                continue
            try:
                found[key] = kind(value[key])
            except ValueError as error:
                self.fault(f"{error}{_at(f'{place}{key}')}", self._show(value[key]))
        return found if len(self.problems) == before else None

    def tables(self, value: object, kinds: Mapping[str, Kind], place: str, most: int) -> list[dict[str, Any]]:
        """Return the tables of a list, without those that are faulty."""
        if not isinstance(value, list) or len(value) > most:
            self.fault(f"a list of at most {most} at {place}", self._show(value))
            return []
        found = (self.table(one, kinds, f"{place}[{number}].") for number, one in enumerate(value))
        return [one for one in found if one is not None]


def _at(place: str) -> str:
    return f" at {place.rstrip('.')}" if place else ""


def hexadecimal(size: int) -> Kind:
    """Read bytes of this length."""

    def kind(value: object) -> bytes:
        if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value):
            raise ValueError(f"{2 * size} hexadecimal digits")
        return bytes.fromhex(value)

    return kind


def encoded(most: int) -> Kind:
    """Read base64 of at most so many bytes."""

    def kind(value: object) -> bytes:
        needed = f"base64 of at most {most} bytes"
        try:
            raw = base64.b64decode(value if isinstance(value, str) else "!", validate=True)
        except ValueError:
            raise ValueError(needed) from None
        if not 0 < len(raw) <= most:
            raise ValueError(needed)
        return raw

    return kind


def encode(raw: bytes) -> str:
    """Return what `encoded` reads."""
    return base64.b64encode(raw).decode()


def text(most: int) -> Kind:
    """Read a line of at most so many printable characters."""

    def kind(value: object) -> str:
        if (
            not isinstance(value, str)
            or not 0 < len(value) <= most
            or not value.isprintable()
            or value != value.strip()
        ):
            raise ValueError(f"a line of 1 to {most} printable characters")
        return value

    return kind


def one_of(words: Sequence[str]) -> Kind:
    """Read one of these words."""

    def kind(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return value

    return kind


def whole(low: int, high: int) -> Kind:
    """Read a whole number."""

    def kind(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return kind


def anything(value: object) -> object:
    """Read what is taken apart later."""
    return value


_FORM = "%Y-%m-%dT%H:%M:%SZ"


def moment(value: object) -> datetime:
    """Read a moment as `stamp` writes it."""
    needed = "a moment such as 2027-01-31T12:00:00Z"
    try:
        found = datetime.strptime(value if isinstance(value, str) else "", _FORM).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(needed) from None
    if stamp(found) != value:
        raise ValueError(needed)
    return found


def stamp(when: datetime) -> str:
    """Return a moment as documents write it: UTC, to the second."""
    return when.astimezone(UTC).strftime(_FORM)


def shown(when: datetime) -> str:
    """Return a moment as people read it."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
