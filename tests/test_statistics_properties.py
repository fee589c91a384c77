"""What must not matter to a verdict, on random tables with holes and failures.

Losses are multiples of 2^-10, so that shifting and scaling them is exact.
"""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.statistics import judge

NAN = math.nan

cell = st.one_of(st.integers(0, 4096).map(lambda i: i / 1024), st.none(), st.just(NAN))


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[float | None]]:
    arms, seeds = draw(st.integers(2, 5)), draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(cell, min_size=seeds, max_size=seeds), min_size=arms, max_size=arms))
    return {f"arm{i}": row for i, row in enumerate(rows)}


def mapped(table, change):
    return {arm: [None if x is None else change(x) for x in row] for arm, row in table.items()}


def words(table, **options) -> dict[str, str]:
    return {arm: row.verdict for arm, row in judge(table, baseline="arm0", **options).items()}


@settings(max_examples=150)
@given(tables(), st.integers(-4096, 4096))
def test_shifting_all_losses_by_a_constant_changes_no_verdict(table, by):
    assert words(mapped(table, lambda x: x + by / 1024)) == words(table)


@settings(max_examples=150)
@given(tables(), st.integers(-6, 6))
def test_scaling_losses_and_margin_together_changes_no_verdict(table, power):
    scaled = words(mapped(table, lambda x: x * 2.0**power), margin=0.005 * 2.0**power)
    expected = {arm: word.replace("0.005", f"{0.005 * 2.0**power:g}") for arm, word in words(table).items()}
    assert scaled == expected


@settings(max_examples=150)
@given(tables(), st.randoms(use_true_random=False))
def test_order_of_seeds_and_of_arms_does_not_matter(table, random):
    order = list(range(len(table["arm0"])))
    random.shuffle(order)
    arms = list(table)
    random.shuffle(arms)
    moved = {arm: [table[arm][i] for i in order] for arm in arms}
    before, after = judge(table, baseline="arm0"), judge(moved, baseline="arm0")
    assert list(after) == arms
    for arm in table:
        assert before[arm].verdict == after[arm].verdict
        for field in ("difference", "value"):
            one_way, other = getattr(before[arm], field), getattr(after[arm], field)
            assert (one_way is None) == (other is None)
            if one_way is not None:
                assert dataclasses.astuple(one_way) == pytest.approx(dataclasses.astuple(other), abs=1e-12)


@settings(max_examples=150)
@given(tables(), st.data())
def test_a_failed_seed_never_makes_an_arm_look_good(table, data):
    arm = data.draw(st.sampled_from(list(table)[1:]))
    seed = data.draw(st.integers(0, len(table[arm]) - 1))
    table[arm][seed] = NAN
    assert words(table)[arm] in ("worse (failed)", "failed", "one seed", "worse", "not resolved")


@settings(max_examples=150)
@given(tables())
def test_no_table_gives_nan_or_an_unknown_word(table):
    known = {"baseline", "not run", "failed", "worse (failed)", "one seed", "identical", "better", "worse"}
    for row in judge(table, baseline="arm0").values():
        assert row.verdict in known | {"equal within 0.005", "not resolved"}
        numbers = [row.p, row.resolvable, row.sign_flip_p]
        for interval in (row.value, row.difference):
            numbers += dataclasses.astuple(interval) if interval else []
        assert not any(x is not None and math.isnan(x) for x in numbers)
        assert row.n <= row.seeds - row.failed - row.missing
