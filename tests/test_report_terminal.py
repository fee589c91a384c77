"""On any screen the table keeps within its width, cuts nothing, and says which columns it left out."""

from __future__ import annotations

import functools
import io
import itertools
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness import report
from harness.report.columns import columns
from harness.report.layout import fit, fold
from tests import fakes

WIDTHS = (60, 72, 80, 100, 120, 140, 200)


def drawn(result: report.Result, width: int, **options: object) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, **options)
    console.print(report.render(result, width))
    return file.getvalue()


CASES: dict[str, dict[str, list[fakes.Outcome]]] = {
    "full": fakes.PARTS,
    "partial": fakes.PARTS | {"lazy": [None] * 5, "lazy[bias=off]": [2.0, 2.1, None, None, None]},
    "failed": fakes.PARTS
    | {"lazy": ["crashed: " + "Error:" * 60, 2.2, 2.1, 2.3, 2.2], "lazy[bias=off]": ["diverged: nan"] * 5},
    "one": {label: cells[:1] for label, cells in fakes.PARTS.items()},
    "none": {label: ["diverged: nan"] * 5 for label in fakes.PARTS},
    "markup": {"softmax": [2.0, 2.1], "lazy[bold]": [2.0, 2.3]},
    "long": {"softmax": [2.0, 2.1], "a_rather_long_name_of_my_mixer.py[a=1,b=2]": [2.5, 2.7], "x" * 50: [2.4, 2.2]},
}


Results = Callable[[str], report.Result]


@pytest.fixture(scope="module")
def result_of(tmp_path_factory: pytest.TempPathFactory) -> Results:
    @functools.cache
    def of(case: str) -> report.Result:
        outcomes = CASES[case]
        same = {arm: first for arm, first in fakes.SAME.items() if arm in outcomes}
        return report.result(*fakes.study(tmp_path_factory.mktemp(case), outcomes, same=same))

    return of


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("case", CASES)
def test_no_line_is_longer_than_the_screen_and_no_cell_is_cut(result_of: Results, case: str, width: int) -> None:
    text = drawn(result_of(case), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


@pytest.mark.parametrize("width", WIDTHS)
def test_numbers_and_verdicts_stand_whole(result_of: Results, width: int) -> None:
    text = drawn(result_of("full"), width)
    for number in ("2.1234 ± 0.0115", "+0.0704 ± 0.0028", "-0.0376 ± 0.0028"):
        assert number in text
    for word in ("baseline", "worse", "better"):
        assert re.search(rf"{word}\b", text)
    verdicts = ("same function", "not resolved", "equal within 0.005") if width >= 72 else ()
    assert all(verdict in text for verdict in verdicts)


def test_a_wide_screen_has_every_column(result_of: Results) -> None:
    result = result_of("full")
    for width in (140, 200):
        assert [column.title for column, _ in fit(columns(result), width)] == [
            "arm",
            "parameters",
            "loss",
            "bits",
            "difference",
            "p",
            "verdict",
            "step",
            "memory",
            "backend",
            "failed",
        ]
        assert "left out" not in drawn(result, width)


def test_80_columns_keep_what_matters_and_name_the_rest(result_of: Results) -> None:
    text = drawn(result_of("full"), 80)
    head = next(line for line in text.splitlines() if line.startswith("arm"))
    assert head.split() == ["arm", "loss", "difference", "verdict"]
    assert "left out     parameters, bits (per byte), p, step (ms)" in text


@pytest.mark.parametrize("case", CASES)
def test_a_wider_screen_only_adds_columns(result_of: Results, case: str) -> None:
    every = columns(result_of(case))
    kept = [{column.title for column, _ in fit(every, width)} for width in range(30, 220)]
    assert all(narrow <= wide for narrow, wide in itertools.pairwise(kept))


def test_failed_seeds_come_before_p_where_room_is_short(result_of: Results) -> None:
    result = result_of("failed")
    titles = [[column.title for column, _ in fit(columns(result), width)] for width in range(60, 120)]
    assert all("failed" in kept for kept in titles if "p" in kept)


def test_points_stand_below_each_other(result_of: Results) -> None:
    lines = drawn(result_of("full"), 140).splitlines()
    body = [line for line in lines if re.match(r"(softmax|lazy|uniform|order-|xz)\S* +[\d,]* +\d\.\d{4}", line)]
    assert len({re.search(r"\d\.\d{4}", line).start() for line in body}) == 1  # type: ignore[union-attr]


def test_colour_repeats_the_word_and_can_be_off(result_of: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of("full")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = drawn(result, 140, force_terminal=True, color_system="standard")
    assert "\x1b[1;32mbetter" in coloured and "\x1b[1;31mworse" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3\d", drawn(result, 140, force_terminal=True, color_system="standard"))


def test_rows_of_the_same_function_are_dimmed(result_of: Results) -> None:
    text = drawn(result_of("full"), 140, force_terminal=True, color_system="standard")
    assert "\x1b[2mflash" in text


def test_brackets_of_an_arm_are_no_markup(result_of: Results) -> None:
    assert "lazy[bold]" in drawn(result_of("markup"), 140)


def test_a_partial_table_says_so_above_and_below(result_of: Results) -> None:
    text = drawn(result_of("partial"), 100)
    assert "partial: some runs are missing" in text and "! partial: not run yet: lazy 5 of 5 seeds" in text


@given(text=st.text(st.sampled_from("abc,[ =."), max_size=60), width=st.integers(2, 40))
def test_folding_loses_nothing_and_keeps_to_its_width(text: str, width: int) -> None:
    lines = fold(text, ", [", width)
    assert max(map(len, lines)) <= width
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
