"""Markdown and CSV compare byte for byte with tables that were looked at, however often they are rebuilt."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import pytest

from harness import report
from harness.errors import RecordError
from harness.records import Store
from tests import fakes

GOLDEN = Path(__file__).parent / "golden"


def result_of(folder: Path, outcomes: dict[str, list[fakes.Outcome]] = fakes.PARTS) -> report.Result:
    index, store = fakes.study(folder, outcomes, same=fakes.SAME)
    return report.result(index, store)


FAILED: dict[str, list[fakes.Outcome]] = fakes.PARTS | {
    "lazy": ["diverged: the loss is nan at step 12, first in layers.0.mixer", 2.136, 2.112, None, None],
    "lazy[bias=off]": ["out of memory: the machine's memory"] * 5,
}


@pytest.mark.parametrize(("name", "outcomes"), [("parts", fakes.PARTS), ("failed", FAILED)])
@pytest.mark.parametrize(("ending", "form"), [("md", report.markdown), ("csv", report.csv)])
def test_the_table_is_the_one_that_was_looked_at(tmp_path: Path, name, outcomes, ending, form) -> None:
    assert form(result_of(tmp_path, outcomes)) == (GOLDEN / f"report_{name}.{ending}").read_text(encoding="utf-8")


def test_a_rebuild_gives_the_same_bytes(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, FAILED, same=fakes.SAME)
    paths = report.write_tables(index, store)
    assert [path.name for path in paths] == ["parts-0a1b2c3d.md", "parts-0a1b2c3d.csv"]
    assert all(path.parent == store.tables for path in paths)
    first = [path.read_bytes() for path in paths]
    again = Store(tmp_path)
    found = again.experiment("parts", "0a1b2c3d")
    assert found is not None
    report.write_tables(found, again)
    assert [path.read_bytes() for path in paths] == first
    assert len(list(store.tables.iterdir())) == 2


def test_a_table_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0]})
    store.tables.write_text("in the way")
    with pytest.raises(RecordError, match="tables"):
        report.write_tables(index, store)


def test_csv_reads_back_as_the_numbers_of_the_frame(tmp_path: Path) -> None:
    result = result_of(tmp_path, FAILED)
    lines = list(csv.DictReader(io.StringIO(report.csv(result))))
    frame = report.frame(result)
    assert list(lines[0]) == list(frame.columns)
    assert [line["arm"] for line in lines if line["kind"] == "arm"] == list(frame["arm"])
    for line, number in zip(lines, frame["difference_mean"], strict=False):
        assert line["difference_mean"] == ("" if number is frame["p"].array.dtype.na_value else f"{number:.6f}")
    assert [line["arm"] for line in lines if line["kind"] == "reference"] == ["uniform", "order-0", "order-1", "xz"]


def test_markdown_is_a_table_whatever_a_label_holds(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0], "a|b": [2.1]}, question="Is *this* <b> a `question`?")
    text = report.markdown(report.result(index, store))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    assert r"\*this\* \<b\> a \`question\`" in text


def test_bits_beside_the_loss_of_triggers_alone_say_that_they_cover_all_targets(tmp_path: Path) -> None:
    plain = result_of(tmp_path)
    assert "| bits (per byte) |" in report.markdown(plain)
    triggers = dataclasses.replace(plain.experiment, metric="trigger_loss_nats")
    told = report.markdown(dataclasses.replace(plain, experiment=triggers))
    assert "| bits (per byte, all targets) |" in told and "trigger loss (nats/token)" in told
