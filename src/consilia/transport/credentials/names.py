"""What members are called and what they are."""

import re
from typing import Literal, get_args
from urllib.parse import quote

from consilia.core.errors import Problem

Role = Literal["site", "coordinator", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)
CLIENTS: tuple[Role, ...] = ("site", "operator")  # they dial
SERVERS: tuple[Role, ...] = ("coordinator",)  # they are dialled
LONGEST = 63  # characters: a DNS label, and within the 64 of a certificate's common name
_NAME = re.compile(rf"[A-Za-z0-9](?:[A-Za-z0-9 _.-]{{0,{LONGEST - 2}}}[A-Za-z0-9])?")


def name(value: object) -> str:
    """Read a member's or consortium's name: one that a plan can have for a site.

    Raises:
        ValueError: With what is needed.
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"at most {LONGEST} letters, digits, spaces and . _ -, with a letter or digit at both ends")  # fmt: skip
    return value


def name_problem(value: str, who: str) -> Problem | None:
    """Return what is wrong with a name that a person typed, or None."""
    try:
        name(value)
    except ValueError as error:
        return Problem(
            who, str(error), repr(value[:80]), "Use the name that plans will have for it, such as hospital-a"
        )
    return None


def dns(name: str) -> str:
    """Return the DNS name in a member's certificate; no two members of a consortium may share one."""
    return re.sub(r"[^a-z0-9]", "-", name.lower())


def uri(role: Role, name: str) -> str:
    """Return the exact role and name as the URI in a member's certificate."""
    return f"consilia:{role}:{quote(name)}"
