"""Numbers are written in one way."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report import formats
from harness.statistics import Interval


@pytest.mark.parametrize(
    ("p", "text"),
    [(None, "—"), (0.0, "<0.001"), (0.00099, "<0.001"), (0.001, "0.001"), (0.0421, "0.042"), (1.0, "1.000")],
)
def test_p_has_three_decimals_or_is_below_a_thousandth(p: float | None, text: str) -> None:
    assert formats.chance(p) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.05, "+0.0500"),
        (-0.05, "-0.0500"),
        (0.0, "0.0000"),
        (-0.00001, "0.0000"),
        (0.00001, "0.0000"),
        (math.nan, "—"),
        (math.inf, "—"),
        (None, "—"),
    ],
)
def test_a_sign_stands_only_before_what_is_not_zero(value: float | None, text: str) -> None:
    assert formats.signed(value, 4) == text


def test_an_infinite_interval_leaves_the_mean_alone() -> None:
    found = formats.intervals([Interval(2.0, -math.inf, math.inf), Interval(12.0, 11.5, 12.5), None], 2)
    assert found == [" 2.00       ", "12.00 ± 0.50", "    —       "]


@given(st.lists(st.none() | st.builds(Interval, *[st.floats(-1e3, 1e3)] * 3), min_size=1))
def test_a_column_of_intervals_has_one_width(values: list[Interval | None]) -> None:
    assert len({len(text) for text in formats.intervals(values, 4, sign=True)}) == 1


def test_seeds_in_a_row_are_a_range() -> None:
    assert formats.number([0, 1, 2, 3]) == "0–3"
    assert formats.number([0, 2]) == "0, 2"
    assert formats.number([5]) == "5"


def test_counts_of_several_arms_are_one_number_or_a_range() -> None:
    assert formats.span([1200, 1200]) == "1,200"
    assert formats.span([1500, 1200]) == "1,200 to 1,500"
