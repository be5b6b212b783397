"""Numbers as people read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.report.numbers import bound, counted, duration, plain, share, size


@given(st.floats(min_value=1e-12, max_value=1e9), st.integers(2, 6))
def test_a_bound_is_never_shown_smaller(value: float, digits: int) -> None:
    shown = float(bound(value, digits))
    assert shown >= value
    assert shown <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (0.3, "0.3"), (0.99987, "0.9999"), (1.00001, "1.001"), (12.34567, "12.35"), (3.1e-8, "3.1e-8"),
     (0.0, "0"), (250_000.0, "250000"), (None, "none"), (math.inf, "none"), (math.nan, "none")],
)  # fmt: skip
def test_bounds(value: float | None, text: str) -> None:
    assert bound(value) == text


def test_sizes_and_times() -> None:
    assert [size(n) for n in (0, 999, 1000, 12_345, 999_600, 33_600_000, 2.5e12, None)] == [
        "0 B", "999 B", "1 kB", "12.3 kB", "1 MB", "33.6 MB", "2.5 TB", "hidden",
    ]  # fmt: skip
    assert [duration(s) for s in (0.04, 9.9, 60, 600, 7_260, None)] == [
        "0.0 s",
        "9.9 s",
        "60 s",
        "10 min",
        "2 h 01 min",
        "unknown",
    ]


def test_shares_counts_and_what_is_missing() -> None:
    assert (share(0.8125), share(None), share(math.nan), share("hidden")) == ("81.2 %", "hidden", "hidden", "hidden")
    assert (plain(8_400_000), plain(0.012345), plain(None), plain(math.inf)) == (
        "8\u202f400\u202f000",
        "0.01235",
        "hidden",
        "not finite",
    )
    assert (counted(1, "site"), counted(4, "site")) == ("1 site", "4 sites")
