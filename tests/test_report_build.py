"""A table is rebuilt from records alone, and says what they lack."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path

import pytest

from harness import environment, report
from harness.config import RunConfig
from harness.errors import RecordError
from harness.records import ExperimentFile, Store
from tests import fakes


def rows(result: report.Result) -> dict[str, report.Row]:
    return {row.label: row for row in result.arms}


def table(folder: Path, outcomes: dict[str, list[fakes.Outcome]], **changes: object) -> report.Result:
    index, store = fakes.study(folder, outcomes, **changes)
    return report.result(index, store)


def test_rows_keep_the_order_of_the_experiment(tmp_path: Path) -> None:
    labels = ["lazy", "softmax", "lazy[bias=off]", "flash"]
    result = table(tmp_path, {label: [2.0, 2.1] for label in labels})
    assert [row.label for row in result.arms] == labels
    assert result.baseline.label == "lazy"


def test_every_common_verdict_is_reached_by_the_handmade_study(tmp_path: Path) -> None:
    result = table(tmp_path, fakes.PARTS, same=fakes.SAME)
    assert [row.verdict for row in result.arms] == [
        "baseline",
        "same function",
        "worse",
        "better",
        "not resolved",
        "equal within 0.005",
    ]
    assert result.complete and not result.warnings
    assert sum(row.tested for row in result.arms) == 4


def test_values_are_the_means_of_the_records_in_both_units(tmp_path: Path) -> None:
    row = rows(table(tmp_path, {"softmax": [2.0, 3.0], "lazy": [1.0, 2.5]}))["lazy"]
    assert row.value is not None and row.value.mean == 1.75
    assert row.bits_per_byte is not None and row.bits_per_byte.mean == pytest.approx(1.75 / math.log(2))
    assert row.difference is not None and row.difference.mean == -0.75
    assert row.record_ids == [fakes.run_id("lazy", 0), fakes.run_id("lazy", 1)]


def test_timings_and_trivial_rows_come_from_their_own_records(tmp_path: Path) -> None:
    result = table(tmp_path / "with", fakes.PARTS)
    assert rows(result)["lazy"].step_ms == 22.5 and rows(result)["lazy"].peak_memory_bytes == 42 << 20
    assert [row["name"] for row in result.references] == ["uniform", "order-0", "order-1", "xz"]
    bare = table(tmp_path / "without", fakes.PARTS, extras=False)
    assert rows(bare)["lazy"].step_ms is None and bare.references == ()


def test_a_partial_table_shows_what_there_is_and_says_so(tmp_path: Path) -> None:
    result = table(tmp_path, {"softmax": [2.0, 2.1, None], "lazy": [1.9, None, None], "flash": [None] * 3})
    assert not result.complete
    assert [row.missing for row in result.arms] == [1, 2, 3]
    assert rows(result)["flash"].verdict == "not run" and rows(result)["flash"].value is None
    assert "softmax 1 of 3 seeds, lazy 2 of 3 seeds, flash 3 of 3 seeds" in result.warnings[0]


def test_an_experiment_without_any_record_is_a_table_too(tmp_path: Path) -> None:
    result = table(tmp_path, {"softmax": [None, None], "lazy": [None, None]}, extras=False)
    assert not result.complete and [row.value for row in result.arms] == [None, None]


def test_failed_seeds_are_rows_with_their_reason(tmp_path: Path) -> None:
    failed: list[fakes.Outcome] = ["diverged: the loss is nan at step 3", 2.2, "crashed: no such thing", 2.1, 2.0]
    result = table(tmp_path, {"softmax": [2.0] * 5, "lazy": failed})
    row = rows(result)["lazy"]
    assert (row.failed, row.verdict) == (2, "worse (failed)")
    assert row.value is not None and row.value.mean == pytest.approx(2.1)
    assert "lazy: 1 of 5 diverged (seed 0): the loss is nan at step 3" in result.notes
    assert "lazy: 1 of 5 crashed (seed 2): no such thing" in result.notes


def test_a_baseline_that_failed_on_every_seed_is_named(tmp_path: Path) -> None:
    result = table(tmp_path, {"softmax": ["diverged: nan"] * 3, "lazy": [2.0, 2.1, 2.2]})
    assert any("baseline softmax has no finished seed" in line for line in result.warnings)
    assert rows(result)["lazy"].difference is None


def test_one_seed_gets_no_interval_and_no_verdict(tmp_path: Path) -> None:
    result = table(tmp_path, {"softmax": [2.0], "lazy": [1.0]})
    assert rows(result)["lazy"].verdict == "one seed"
    assert any("one seed says nothing about noise" in line for line in result.warnings)
    assert not any(line.startswith("verdict:") for line in result.reading)


def test_the_row_of_the_same_function_is_not_tested_even_when_it_is_the_baseline(tmp_path: Path) -> None:
    result = table(
        tmp_path,
        {label: fakes.PARTS[label] for label in ("softmax", "flash", "lazy")},
        same=fakes.SAME,
        baseline="flash",
    )
    assert [row.verdict for row in result.arms] == ["same function", "baseline", "worse"]
    assert rows(result)["softmax"].same_as == "flash"


def test_rows_of_other_code_are_stale(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [None, 2.0]})
    store.write_run(fakes.run_record("lazy", 0, 1.9, code_hash="0" * 64))
    result = report.result(index, store)
    assert [row.stale for row in result.arms] == [0, 1]
    assert any("--fresh trains them again" in line for line in result.warnings)
    assert any(line.startswith("mixed code") for line in result.warnings)


def test_a_newer_record_of_the_present_code_replaces_a_stale_one(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [None, 2.0]})
    store.write_run(fakes.run_record("lazy", 0, 1.9, code_hash="0" * 64))
    store.write_run(fakes.run_record("lazy", 0, 1.7))
    store.write_run(fakes.run_record("lazy", 0, 1.5, code_hash="1" * 64))
    row = rows(report.result(index, store))["lazy"]
    assert row.stale == 0 and row.value is not None and row.value.mean == pytest.approx(1.85)


def test_mixed_environments_are_named(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [None, 2.0]})
    store.write_run(fakes.run_record("lazy", 0, 1.9, environment=fakes.MACHINE | {"torch": "2.9.0", "memory_bytes": 1}))
    warnings = report.result(index, store).warnings
    assert any("torch 2.13.0 and 2.9.0" in line for line in warnings)
    assert not any("memory_bytes" in line for line in warnings)


def test_an_arm_above_order_1_is_named(tmp_path: Path) -> None:
    warnings = table(tmp_path, {"softmax": [2.0, 2.1], "lazy": [3.0, 3.1]}).warnings
    assert any(line.startswith("not below order-1") and line.endswith(": lazy") for line in warnings)


def recorded(index: ExperimentFile, store: Store, run: RunConfig) -> ExperimentFile:
    """The index with the first run of its second arm replaced by another one, which is recorded."""
    store.write_run(fakes.run_record("lazy", 0, 1.9, id=run.id, config=run.to_dict()))
    first, second = index.arms
    return dataclasses.replace(index, arms=[first, {**second, "ids": [run.id, *second["ids"][1:]]}])


def test_a_record_edited_by_hand_is_named_and_counts_as_not_run(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [None, 2.0]})
    edited = fakes.run_config("lazy", 0).to_dict()
    edited["train"]["steps"] = 1
    store.write_run(fakes.run_record("lazy", 0, 1.1, config=edited))
    assert not report.result(index, store).complete
    assert any("its config belongs to run" in problem for problem in store.problems)


def test_learning_rates_that_differ_are_not_called_one_for_all(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0], "lazy": [None]})
    assert "one learning rate for all (0.01)" in report.result(index, store).subtitle
    index = recorded(index, store, fakes.run_config("lazy", 0, learning_rate=3e-3))
    assert "set by hand, 0.003 to 0.01" in report.result(index, store).subtitle


@pytest.mark.parametrize("part", ["data", "fingerprint", "seed"])
def test_rows_of_other_data_or_seeds_never_share_a_table(tmp_path: Path, part: str) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [None, 2.0]})
    run = fakes.run_config("lazy", 0)
    other = {
        "data": dataclasses.replace(run, data=dataclasses.replace(run.data, report_tokens=4_096)),
        "fingerprint": dataclasses.replace(run, fingerprint="cd" * 32),
        "seed": dataclasses.replace(run, train=dataclasses.replace(run.train, seed=7)),
    }[part]
    index = recorded(index, store, other)
    with pytest.raises(RecordError, match=f"run {other.id} of lazy"):
        report.result(index, store)


def test_a_record_without_the_primary_metric_is_named(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0]}, metric="accuracy")
    with pytest.raises(RecordError, match="has no accuracy"):
        report.result(index, store)


def test_a_file_of_a_user_that_is_gone_leaves_staleness_unknown(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0], "lazy": [None]})
    index = recorded(index, store, dataclasses.replace(fakes.run_config("lazy", 0), variant=str(tmp_path / "mine.py")))
    result = report.result(index, store)
    assert any(line.startswith("mine.py is gone") for line in result.warnings)
    assert not any(str(tmp_path) in line for line in result.warnings)


def test_fairness_says_what_the_arms_share(tmp_path: Path) -> None:
    lines = "\n".join(table(tmp_path, fakes.PARTS, same=fakes.SAME).fairness)
    for said in (
        "115,264 to 119,368 (3.6 % apart)",
        "trained on 245,760 tokens",
        "seeds: 0–4",
        "failures: 0 of 30 runs",
        "float32 on cpu",
        "backends: sdpa",
        fakes.FINGERPRINT[:12],
        "torch 2.13.0",
        "Example CPU",
        "commit 01234567",
    ):
        assert said in lines


def test_equal_sizes_are_one_number(tmp_path: Path) -> None:
    line = table(tmp_path, {"softmax": [2.0], "flash": [2.0]}).fairness[0]
    assert line.startswith("parameters: 115,264; ")


def test_a_report_writes_nothing_by_itself(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0]})
    before = sorted(path.name for path in tmp_path.rglob("*"))
    report.render(report.result(index, Store(tmp_path)), 80)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert store.problems == []


def test_of_several_experiments_with_one_name_the_last_written_is_meant(tmp_path: Path) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [1.9, 2.0]})
    other = dataclasses.replace(index, key="ffffffff")
    store.write_experiment(other)
    for place, file in enumerate((other, index)):
        os.utime(store.root / "experiments" / f"{file.stem}.json", ns=(place, place))
    assert store.latest_experiment(index.name) == index
    assert store.latest_experiment(other.stem) == other
    assert store.latest_experiment("another") is None


def test_tables_on_disk_do_not_change_when_code_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [1.9, 2.0]})
    before = report.markdown(report.result(index, store, present=False))
    monkeypatch.setattr(environment, "code_hash", lambda variant, pattern=None: "0" * 64)
    assert report.result(index, store).arms[0].stale
    assert report.markdown(report.result(index, store, present=False)) == before
