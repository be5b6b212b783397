"""From records to series: the numbers that figures draw, with gaps where nothing was released."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Series = tuple[list[float], list[float]]
MAX_POINTS = 800


def number(value: object) -> float | None:
    """Return a finite number or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def thinned(records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return at most `MAX_POINTS` records, evenly spaced, the last one always among them."""
    if len(records) <= MAX_POINTS:
        return records
    step = math.ceil(len(records) / MAX_POINTS)
    return records[len(records) - 1 :: -step][::-1]


def of(records: Sequence[Mapping[str, Any]], key: str) -> Series:
    """Return (rounds, values) of a plain field, without the rounds that have none."""
    points = [(float(record["round"]), number(record.get(key))) for record in records]
    known = [(x, y) for x, y in points if y is not None]
    return [x for x, _ in known], [y for _, y in known]


def per_site(records: Sequence[Mapping[str, Any]], key: str, inner: str | None) -> dict[str, Series]:
    """Return site -> (rounds, values) of a field that is a table by site, or "hidden".

    Args:
        records: The rounds.
        key: "per_site" or "update_norms".
        inner: The entry of a site's own table, or None where its value is the number.
    """
    found: dict[str, Series] = {}
    for record in records:
        table = record.get(key)
        if not isinstance(table, Mapping):
            continue
        for site, entry in table.items():
            value = number(entry.get(inner) if inner and isinstance(entry, Mapping) else entry)
            if value is not None:
                xs, ys = found.setdefault(site, ([], []))
                xs.append(float(record["round"]))
                ys.append(value)
    return dict(sorted(found.items()))


def cosine_means(records: Sequence[Mapping[str, Any]]) -> Series:
    """Return (rounds, mean cosine similarity of the round's updates)."""
    flat = [
        {"round": record["round"], "mean": record["cosine"].get("mean")}
        for record in records
        if isinstance(record.get("cosine"), Mapping)
    ]
    return of(flat, "mean")


def last_pairs(records: Sequence[Mapping[str, Any]]) -> tuple[int, dict[tuple[str, str], float]] | None:
    """Return the newest round whose pairs are known and the cosine of each pair."""
    for record in reversed(records):
        cosine = record.get("cosine")
        if not isinstance(cosine, Mapping) or not cosine.get("pairs"):
            continue
        pairs = {}
        for name, value in cosine["pairs"].items():
            first, _, second = name.partition("|")
            if (known := number(value)) is not None:
                pairs[first, second] = known
        return int(record["round"]), pairs
    return None


def running_total(records: Sequence[Mapping[str, Any]], key: str) -> Series:
    """Return (rounds, sum up to and with each round)."""
    xs, ys = of(records, key)
    total, sums = 0.0, []
    for value in ys:
        total += value
        sums.append(total)
    return xs, sums
