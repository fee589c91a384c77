"""A record reads back as it was written, whatever it holds; all else is refused with the file's name."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import experiment_file, one_of_each, run_record, timing_record

from harness.errors import RecordError
from harness.records import ExperimentFile, Record, RunRecord

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=5)
KEYS = st.text(max_size=4) | st.sampled_from(["", "a/b", "~", "~1", "0", "-1"])
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, ANY_JSON, max_size=4)


def read_back(record: Record) -> Record:
    return type(record).from_json(record.to_json(), where="file")


def document(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.to_json())
    return found


def refused(values: Any, *, text: str | None = None) -> str:
    with pytest.raises(RecordError) as caught:
        RunRecord.from_json(json.dumps(values) + "\n" if text is None else text, where="runs/x.json")
    assert str(caught.value).startswith("runs/x.json: ")
    return str(caught.value)


@pytest.mark.parametrize("record", one_of_each(), ids=lambda record: record.kind)
def test_each_kind_reads_back_as_it_was(record: Record) -> None:
    assert read_back(record) == record


# repr, because nan is not equal to itself, and because -0.0 == 0 == False.
@given(
    config=OBJECTS,
    metrics=st.dictionaries(KEYS, st.none() | FLOATS, max_size=4),
    curve=st.lists(OBJECTS, max_size=3),
    error=st.none() | st.text(),
    seconds=FLOATS,
)
def test_any_values_read_back_as_they_were(
    config: dict[str, Any],
    metrics: dict[str, float | None],
    curve: list[dict[str, Any]],
    error: str | None,
    seconds: float,
) -> None:
    record = run_record(config=config, metrics=metrics, curve=curve, error=error, seconds=seconds)
    assert repr(read_back(record)) == repr(record)


@given(config=OBJECTS)
def test_what_is_written_is_strict_json_in_ascii(config: dict[str, Any]) -> None:
    def no_constant(word: str) -> None:
        raise AssertionError(word)

    text = run_record(config=config).to_json()
    json.loads(text, parse_constant=no_constant)
    assert text.isascii()


def test_half_a_surrogate_pair_reads_back() -> None:
    assert read_back(run_record(error="\udcff")) == run_record(error="\udcff")


def test_a_number_that_is_not_finite_is_null_with_its_reason() -> None:
    written = document(run_record(metrics={"val_loss_nats": math.nan, "a/b": -math.inf, "none": None}))
    assert written["metrics"] == {"val_loss_nats": None, "a/b": None, "none": None}
    assert written["non_finite"] == {"/metrics/val_loss_nats": "nan", "/metrics/a~1b": "-inf"}


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "fine"},
        {"seconds": "1"},
        {"seconds": True},
        {"parameters": 1.5},
        {"config": {1: 2}},
        {"config": {"a": (1, 2)}},
        {"config": {"a": object()}},
        {"metrics": {"loss": "low"}},
        {"curve": [3]},
        {"id": None},
    ],
)
def test_a_field_of_the_wrong_type_is_not_written(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match=r"run .* cannot be recorded: "):
        run_record(**changes).to_json()


@pytest.mark.parametrize("field", sorted(document(run_record())))
def test_a_record_that_misses_a_field_is_refused(field: str) -> None:
    values = document(run_record())
    del values[field]
    refused(values)


def test_an_experiment_of_before_a_field_came_is_read_as_what_it_meant() -> None:
    written = experiment_file().to_json()
    values = json.loads(written)
    del values["command"]
    read = ExperimentFile.from_json(json.dumps(values) + "\n", where="x")
    assert read.command == "" and read.stem == ExperimentFile.from_json(written, where="x").stem


@pytest.mark.parametrize("field", sorted(document(run_record())))
@given(value=ANY_JSON.filter(lambda value: "nan" not in repr(value) and "inf" not in repr(value)))
def test_a_field_of_any_other_content_reads_back_or_is_refused(field: str, value: Any) -> None:
    values = document(run_record()) | {field: value}
    try:
        record = RunRecord.from_json(json.dumps(values) + "\n", where="file")
    except RecordError:
        return
    assert document(record) == values


@given(text=st.text() | ANY_JSON.map(json.dumps))
def test_foreign_text_is_refused(text: str) -> None:
    refused(None, text=text + "\n")


def test_every_shorter_text_is_refused() -> None:
    text = run_record().to_json()
    for size in range(len(text)):
        refused(None, text=text[:size])


@pytest.mark.parametrize("schema", [2, 0, "1", 1.0, True, None])
def test_another_schema_is_refused(schema: object) -> None:
    assert "schema" in refused(document(run_record()) | {"schema": schema})


def test_an_unknown_field_is_refused_by_name() -> None:
    assert "unknown colour" in refused(document(run_record()) | {"colour": "red"})


def test_a_record_of_another_kind_is_refused() -> None:
    assert "'timing'" in refused(document(timing_record()))


@pytest.mark.parametrize("part", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_bare_number_that_is_not_finite_is_refused(part: str) -> None:
    refused(None, text=run_record().to_json().replace("1.25", part))


def test_a_key_that_comes_twice_is_refused() -> None:
    twice = '"backend": "sdpa", "backend": "other"'
    refused(None, text=run_record().to_json().replace('"backend": "sdpa"', twice))


@pytest.mark.parametrize(
    "pointer",
    [
        "",
        "/",
        "metrics/none",
        "/metrics",
        "/metrics/loss",
        "/metrics/gone",
        "/curve/-1/none",
        "/curve/00/none",
        "/curve/9",
        "/curve/0/none/x",
        "/id/0",
    ],
)
def test_a_reason_for_no_null_is_refused(pointer: str) -> None:
    values = document(run_record(metrics={"loss": 1.0, "none": None}, curve=[{"none": None}]))
    assert "where no null stands" in refused(values | {"non_finite": {pointer: "nan"}})


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 10_000, '{"schema": ' + "1" * 10_000 + "}"])
def test_absurd_text_is_refused(text: str) -> None:
    refused(None, text=text + "\n")


def test_an_arm_that_misses_or_adds_a_key_is_refused() -> None:
    arm = experiment_file().arms[0]
    with pytest.raises(RecordError, match=r"misses arms\.0\.ids"):
        experiment_file(arms=[{name: value for name, value in arm.items() if name != "ids"}]).to_json()
    with pytest.raises(RecordError, match=r"unknown arms\.0\.colour"):
        experiment_file(arms=[{**arm, "colour": "red"}]).to_json()
