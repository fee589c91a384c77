"""What bench is asked and cannot do is one line before anything is measured; an earlier result is held by its ratios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import bench
from harness.bench import __main__ as alone
from harness.bench import options
from harness.commands import bench as command
from harness.errors import UsageError
from tests.cli import run
from tests.test_bench import result, row


@pytest.mark.parametrize(("words", "said"), [
    ({"parts": ["core"]}, "did you mean 'cores'"),
    ({"dtypes": ["float16"]}, "dtype"),
    ({"device": "gpu"}, "device"),
    ({"lengths": [0]}, "at least 1"),
    ({"lengths": [16], "parts": ["step", "decode"]}, "--lengths belongs to cores; leave it out of step, decode"),
    ({"dtypes": ["bfloat16"], "parts": ["step"]}, "--dtypes belongs to cores and blocks"),
])  # fmt: skip
def test_what_cannot_be_measured_is_refused_by_name(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bench.Options(**words)


def test_workers_alone_on_one_core_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.os, "sched_getaffinity", lambda pid: {0})
    with pytest.raises(UsageError, match="takes two cores"):
        bench.Options(parts=["workers"])
    assert bench.Options(parts=["workers", "step"]).parts == ["workers", "step"]


NO_NUMBERS = {
    "no number": (["--lengths", "256", "abc"], "--lengths abc: allowed is a whole number"),
    "half a token": (["--lengths", "1.5"], "--lengths 1.5: allowed is a whole number"),
    "an empty word": (["--lengths", ""], "--lengths : allowed is a whole number"),
    "none": (["--lengths", "0"], "at least 1"),
    "fewer than none": (["--lengths=-5"], "at least 1"),
    "nothing": (["--lengths"], "--lengths: nothing follows it"),
    "no dtype": (["--dtypes"], "--dtypes: nothing follows it"),
}


@pytest.mark.parametrize("case", sorted(NO_NUMBERS))
def test_a_length_that_is_none_is_one_line_and_exit_2(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, said = NO_NUMBERS[case]
    monkeypatch.setattr(alone, "bench", lambda *_: pytest.fail("the benchmark began"))
    assert alone.main(["cores", *words]) == 2
    told = capsys.readouterr()
    assert told.out == "" and said in told.err and len(told.err.splitlines()) == 1


def test_the_command_line_says_the_same_line() -> None:
    words, said = NO_NUMBERS["half a token"]
    done = run("bench", "cores", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


BROKEN = {
    "no JSON": "{",
    "nothing": "",
    "a list": "[]",
    "a number": "3",
    "no rows": "{}",
    "rows that are none": '{"rows": 5}',
    "rows as an object": '{"rows": {"name": 1}}',
    "a row that is text": '{"rows": ["name shape dtype pass backend against ratio"]}',
    "a row without keys": '{"rows": [{}]}',
    "a list for a name": json.dumps(result(row(name=["lazy"]))),
    "null for a shape": json.dumps(result(row(shape=None))),
    "a ratio in words": json.dumps(result(row(ratio="1.2"))),
    "a ratio that is true": json.dumps(result(row(ratio=True))),
    "a negative ratio": json.dumps(result(row(ratio=-1.0))),
    "a ratio that is no number": '{"rows": [' + json.dumps(row(ratio=float("nan"))) + "]}",
    "an endless ratio": '{"rows": [' + json.dumps(row(ratio=float("inf"))) + "]}",
    "a ratio beyond floats": '{"rows": [' + json.dumps(row()).replace('"ratio": 1.2', '"ratio": 1' + "0" * 400) + "]}",
    "lists in lists": '{"rows": ' + "[" * 100_000,
}


@pytest.mark.parametrize("case", sorted(BROKEN))
def test_an_earlier_result_that_is_none_is_said_before_the_benchmark(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "bench", lambda *_: pytest.fail("the benchmark began"))
    file = tmp_path / "then.json"
    file.write_text(BROKEN[case])
    with pytest.raises(UsageError, match="--against") as caught:
        command.measure(bench.Options(), tmp_path, file, lambda stage: None)
    assert len(str(caught.value).splitlines()) == 1


def test_no_file_and_bytes_that_are_no_text_are_no_earlier_result(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for file in (tmp_path, tmp_path / "missing", tmp_path / "bytes"):
        with pytest.raises(UsageError, match="--against"):
            bench.load(file)


def test_an_earlier_result_is_compared_by_its_ratios(tmp_path: Path) -> None:
    then, now = result(row(), row(name="sigmoid", ratio=1.0)), result(row(ratio=1.8), row(name="mamba"))
    (change,) = bench.against(now, then)
    assert (change["name"], change["then"], change["now"], change["change"]) == ("lazy", 1.2, 1.8, 1.8 / 1.2)
    file = tmp_path / "then.json"
    file.write_text(json.dumps(then))
    assert bench.load(file) == then


def test_a_third_of_a_ratio_is_a_larger_change_than_twice_it() -> None:
    names = ("twice", "a third", "the same", "none")
    then = result(*(row(name=name, ratio=1.2) for name in names))
    ratios = (2.4, 0.4, 1.2, None)
    now = result(*(row(name=name, ratio=ratio) for name, ratio in zip(names, ratios, strict=True)))
    assert [change["name"] for change in bench.against(now, then)] == ["a third", "twice", "the same"]
    assert bench.against(result(row(ratio=1e-300)), result(row(ratio=1e308)))[0]["change"] == 0.0


def test_a_result_is_on_the_disk_before_anything_is_made_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("a fault of the table")

    monkeypatch.setattr(command, "bench", lambda *_: result(row()))
    monkeypatch.setattr(command, "lines", fails)
    with pytest.raises(RuntimeError):
        command.measure(bench.Options(), tmp_path, None, lambda stage: None)
    assert json.loads((tmp_path / "bench" / "cpu.json").read_text()) == result(row())


def test_a_results_folder_that_is_a_file_is_said_before_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "bench", lambda *_: pytest.fail("the benchmark began"))
    (tmp_path / "out").write_text("occupied")
    with pytest.raises(UsageError, match="cannot be used"):
        command.measure(bench.Options(), tmp_path / "out", None, lambda stage: None)
