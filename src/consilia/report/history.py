"""What went wrong in which rounds, gathered by reason: skipped rounds, and answers that were dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Turns:
    """How often a site was asked, and how often its answer counted."""

    asked: int
    counted: int


def skipped(records: Records) -> list[tuple[str, list[int]]]:
    """Return (reason, rounds), the most frequent first."""
    found: dict[str, list[int]] = {}
    for record in records:
        if record.get("status") == "skipped":
            found.setdefault(str(record.get("reason") or "no reason given"), []).append(record["round"])
    return sorted(found.items(), key=lambda item: -len(item[1]))


def dropped(records: Records) -> list[tuple[str, str, list[int]]]:
    """Return (site, reason, rounds), the most frequent first."""
    found: dict[tuple[str, str], list[int]] = {}
    for record in records:
        for site, reason in (record.get("dropped") or {}).items():
            found.setdefault((site, str(reason)), []).append(record["round"])
    return [(site, reason, rounds) for (site, reason), rounds in sorted(found.items(), key=lambda item: -len(item[1]))]


def turns(records: Records) -> dict[str, Turns]:
    """Return for each site how often it was asked and how often its answer counted."""
    asked: dict[str, int] = {}
    counted: dict[str, int] = {}
    for record in records:
        for site in record.get("asked") or []:
            asked[site] = asked.get(site, 0) + 1
        if record.get("status") == "counted":
            for site in record.get("answered") or []:
                counted[site] = counted.get(site, 0) + 1
    return {site: Turns(number, counted.get(site, 0)) for site, number in asked.items()}


def ages(records: Records) -> dict[str, float]:
    """Return for each site how many steps behind its updates in counted sums were, on average; empty where all wait."""
    found: dict[str, list[int]] = {}
    for record in records:
        for site, age in (record.get("staleness") or {}).items():
            if record.get("status") == "counted" and site in (record.get("answered") or []):
                found.setdefault(site, []).append(age)
    return {site: sum(each) / len(each) for site, each in found.items()}


def ranges(rounds: Sequence[int], most: int = 12) -> str:
    """Return "1-3, 7" for [1, 2, 3, 7]; beyond `most` pieces the rest is counted."""
    pieces: list[list[int]] = []
    for number in sorted(rounds):
        if pieces and number == pieces[-1][1] + 1:
            pieces[-1][1] = number
        else:
            pieces.append([number, number])
    shown = [f"{a}" if a == b else f"{a}\u2013{b}" for a, b in pieces[:most]]
    rest = sum(b - a + 1 for a, b in pieces[most:])
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
