"""A results folder never loses, changes or deletes a record, and says what it could not read."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import experiment_file, measurement_record, reference_record, run_record, timing_record

from harness.errors import RecordError
from harness.records import Store, whole

ID = run_record().id


def files(root: Path) -> dict[str, bytes]:
    """Every file of a results folder but its locks, with its content."""
    found = (path for path in root.rglob("*") if path.is_file() and path.parent.name != "locks")
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def test_reading_an_absent_folder_finds_nothing_and_makes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    assert store.run(ID, None) is None and store.timing("k") is None and store.all_experiments() == []
    assert store.problems == [] and not store.root.exists()


def test_a_second_run_of_an_id_stands_beside_the_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = store.write_run(run_record(seconds=1.0))
    before = files(tmp_path)
    second = store.write_run(run_record(seconds=2.0))
    third = store.write_run(run_record(seconds=3.0))
    assert [record.fresh for record in (first, second, third)] == [1, 2, 3]
    assert set(files(tmp_path)) == {f"runs/{ID}{tail}.json" for tail in ("", "-2", "-3")}
    assert before.items() <= files(tmp_path).items()
    assert Store(tmp_path).all_runs() == [first, second, third]


def test_the_newest_run_of_this_code_counts_then_the_newest_of_any(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for code in ("old", "old", "new", "other"):
        store.write_run(run_record(code_hash=code))
    chosen = {code: store.run(ID, code) for code in ("old", "new", "unseen", None)}
    numbers = {code: run.fresh for code, run in chosen.items() if run}
    assert numbers == {"old": 2, "new": 3, "unseen": 4, None: 4}


def test_ten_runs_of_an_id_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(11):
        store.write_run(run_record())
    assert [record.fresh for record in store.all_runs()] == list(range(1, 12))
    newest = store.run(ID, None)
    assert newest is not None and newest.fresh == 11


def test_runs_of_other_ids_are_not_confused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for id in (ID, f"{ID}1", ID[:-1]):
        store.write_run(run_record(id=id))
    found = store.run(ID, None)
    assert found is not None and found.id == ID
    assert [record.id for record in store.all_runs()] == [ID[:-1], ID, f"{ID}1"]


def test_the_newest_timing_and_references_count(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seconds in (1.0, 2.0):
        store.write_timing(timing_record(seconds=seconds))
    store.write_reference(reference_record())
    store.write_reference(reference_record(length=64))
    assert store.timing(timing_record().key) == timing_record(seconds=2.0)
    assert len(store.all_timings()) == 2
    assert store.reference("ffee", 128, 512) == reference_record()
    assert store.reference("ffee", 128, 51) is None
    assert len(store.all_references()) == 2


def test_an_experiment_is_an_index_that_is_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_experiment(experiment_file(key="00000012"))
    store.write_experiment(experiment_file(key="00000012", notes="more"))
    assert store.experiment("compare", "00000012") == experiment_file(key="00000012", notes="more")
    assert store.all_experiments() == [experiment_file(key="00000012", notes="more")]
    assert store.problems == []


def test_arrays_of_a_measurement_stand_beside_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    maps = {"map": np.arange(6.0).reshape(1, 2, 3), "odd": np.array([np.nan, np.inf, -0.0])}
    first = store.write_measurement(measurement_record(values={"sink_share": math.nan}), maps)
    second = store.write_measurement(measurement_record(), {"map": np.zeros(2, dtype=np.float16)})
    bare = store.write_measurement(measurement_record(step=9))
    found = store.arrays(first)
    assert set(found) == set(maps)
    assert all(found[name].tobytes() == maps[name].tobytes() for name in maps)
    assert store.measurement("00aa", "sink", 1, 7) == second
    assert store.arrays(second)["map"].dtype == np.float16
    assert store.arrays(bare) == {}
    assert len(store.all_measurements()) == 3 and store.problems == []


def test_a_measurement_that_says_what_the_newest_says_stands_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for share in (0.5, 0.5, float("nan"), float("nan"), 0.5):
        store.write_measurement(measurement_record(values={"sink_share": share}), {"map": np.ones(3)})
    assert [str(record.values["sink_share"]) for record in store.all_measurements()] == ["0.5", "nan", "0.5"]


def test_arrays_that_changed_or_went_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = store.write_measurement(measurement_record(), {"map": np.zeros(3)})
    path = next((tmp_path / "measurements").glob("*.npz"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordError, match=path.name):
        store.arrays(record)
    path.unlink()
    with pytest.raises(RecordError, match=path.name):
        store.arrays(record)


def test_a_record_cut_at_any_byte_is_named_skipped_and_kept(tmp_path: Path) -> None:
    content = (
        run_record(config={"variant": "softmax", "mixer": {"rope": True}}, environment={}, curve=[]).to_json().encode()
    )
    path = tmp_path / "runs" / f"{ID}.json"
    path.parent.mkdir()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        store = Store(tmp_path)
        assert store.run(ID, None) is None and store.all_runs() == []
        assert len(store.problems) == 1 and str(path) in store.problems[0]
        assert path.read_bytes() == content[:size]
    path.write_bytes(content)
    assert Store(tmp_path).run(ID, None) is not None


@given(content=st.binary(max_size=30))
def test_foreign_bytes_are_named_and_skipped(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("store")
    (root / "runs").mkdir()
    path = root / "runs" / f"{ID}.json"
    path.write_bytes(content)
    store = Store(root)
    assert store.all_runs() == [] and str(path) in store.problems[0]


def test_a_broken_record_hides_no_other_and_keeps_its_number(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_run(run_record())
    path = tmp_path / "runs" / f"{ID}-2.json"
    path.write_text("{")
    (tmp_path / "runs" / "folder.json").mkdir()
    third = store.write_run(run_record())
    assert third.fresh == 3 and path.read_text() == "{"
    assert [record.fresh for record in store.all_runs()] == [1, 3]
    first, second = sorted(store.problems)
    assert path.name in first and "folder.json" in second


@pytest.mark.parametrize("name", ["other", f"{ID}-1", f"{ID}-02", f"{ID}-2", f"{ID}-x", f"copy of {ID}"])
def test_a_record_under_another_name_is_named_and_skipped(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path)
    store.write_run(run_record())
    (tmp_path / "runs" / f"{ID}.json").rename(tmp_path / "runs" / f"{name}.json")
    assert store.all_runs() == [] and name in store.problems[0]


def test_a_problem_is_named_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / f"{ID}.json").write_text("[]")
    for _ in range(3):
        store.run(ID, None)
        store.all_runs()
    assert len(store.problems) == 1


def test_hidden_files_and_other_files_are_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_run(run_record())
    for name in (f".{ID}.json.17-ab.tmp", ".hidden.json", "README.md"):
        (tmp_path / "runs" / name).write_text("{")
    before = files(tmp_path)
    assert len(store.all_runs()) == 1 and store.problems == [] and files(tmp_path) == before


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a\nb", "a b"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path / "root")
    for attempt in (
        lambda: store.write_run(run_record(id=name)),
        lambda: store.claim(name),
        lambda: store.checkpoint_path(name),
        lambda: store.weights_path(name),
    ):
        with pytest.raises(RecordError, match="cannot be the name of a file"):
            attempt()
    assert files(tmp_path) == {}


def test_a_checkpoint_is_replaced_whole(tmp_path: Path) -> None:
    path = Store(tmp_path).checkpoint_path(ID)
    for content in (b"first", b"second"):
        with whole(path) as file:
            file.write(content)
    assert files(tmp_path) == {f"checkpoints/{ID}.pt": b"second"}
