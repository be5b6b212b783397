"""Numbers as people read them. A bound is rounded up, never to the friendlier side."""

import math
from decimal import ROUND_CEILING, Context, Decimal

HIDDEN = "hidden"
HIDDEN_BY_SUM = "hidden by the secure sum"


def bound(value: float | None, digits: int = 4) -> str:
    """Return an upper bound with so many significant digits, rounded up; "none" where nothing bounds it."""
    if value is None or not math.isfinite(value):
        return "none"
    # Through the shortest decimal, so that a target of 0.3 reads 0.3 and not 0.3001.
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    if rounded == 0 or Decimal("1e-4") <= rounded < 10**6:
        return f"{rounded.normalize():f}"
    mantissa, _, exponent = f"{rounded.normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def share(value: object, missing: str = HIDDEN) -> str:
    """Return a share of 1 as a percentage with one decimal."""
    return f"{100 * value:.1f} %" if isinstance(value, int | float) and math.isfinite(value) else missing


def plain(value: object, missing: str = HIDDEN) -> str:
    """Return a number with four significant digits, whole ones in full, with thin spaces between thousands."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return missing if value is None else str(value)
    if not math.isfinite(value):
        return "not finite"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}".replace(",", "\u202f")
    return f"{value:.4g}"


def size(count: object) -> str:
    """Return a number of bytes with its unit (powers of 1000)."""
    if isinstance(count, bool) or not isinstance(count, int | float):
        return HIDDEN
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.5 else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def duration(seconds: object) -> str:
    """Return a time as people say it."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return "unknown"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def counted(number: int, noun: str) -> str:
    """Return "1 site" or "4 sites"."""
    return f"{plain(number)} {noun}" + ("" if number == 1 else "s")
