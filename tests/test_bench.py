"""bench runs, says what it measured, and holds itself to its bars; no test here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import bench
from harness.bench import benchmark, blocks, clock, cores, decode, layers, memory, peers, steps, text, workers
from harness.bench.case import Case, Group
from harness.contract.finding import Finding
from harness.report import bench_figure
from tests.cli import ENVIRONMENT, ROOT, run

KEYS = {"name", "shape", "dtype", "pass", "backend", "median_ms", "quartiles_ms", "ratio", "against",
        "peak_memory_bytes", "share_of_peak"}  # fmt: skip


def row(**changes: Any) -> dict[str, Any]:
    """A row of a result."""
    values = {"name": "lazy", "shape": "B2 H8 T1024 D64", "dtype": "float32", "pass": "forward+backward",
              "backend": "blocked", "median_ms": 12.0, "quartiles_ms": [11.0, 13.0], "ratio": 1.2,
              "against": "softmax sdpa", "peak_memory_bytes": 2**20, "share_of_peak": 0.3}  # fmt: skip
    return {**values, **changes}


def result(*rows: dict[str, Any]) -> dict[str, Any]:
    machine = {"gpu": None, "cpu": "a CPU", "device": "cpu", "threads": 2, "torch": "2", "matmul_flops": {"float32": 1e9},
               "left_out": {"mambapy": "not here"}, "right": ["lazy blocked"], "wrong": [], "seconds": 90.0}  # fmt: skip
    return {"machine": machine, "rows": list(rows)}


def test_bench_measures_cores_and_layers_on_the_command_line(tmp_path: Path) -> None:
    done = run("bench", "cores", "--lengths", "16", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"machine", "rows"}
    assert all(set(row) == KEYS for row in found["rows"])
    names = {(row["name"], row["backend"], row["pass"]) for row in found["rows"]}
    for part in ("forward", "forward+backward"):
        assert {("softmax", "sdpa", part), ("lazy", "blocked", part), ("lazy", "reference", part)} <= names
    assert all(row["ratio"] > 0 and row["median_ms"] > 0 for row in found["rows"])
    assert found["machine"]["wrong"] == []
    assert {file.name for file in (tmp_path / "bench").iterdir()} == {"cpu.json", "cpu.txt", "cpu.svg", "cpu.png"}
    again = run("bench", "cores", "--lengths", "16", "--out", str(tmp_path), "--against",
                str(tmp_path / "bench" / "cpu.json"))  # fmt: skip
    assert "now / then" in again.stdout


def test_the_module_alone_loads_neither_the_command_line_nor_a_search() -> None:
    code = (
        "import sys; import harness.bench.__main__; "
        "sys.exit(any(name in sys.modules for name in ('optuna', 'tyro', 'pandas', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT).returncode == 0
    if not torch.cuda.is_available():
        words = [sys.executable, "-m", "harness.bench", "--device", "cuda", "--json"]
        done = subprocess.run(words, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no CUDA device" in done.stderr


def test_every_group_can_be_made_and_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    small = layers.Shape(rows=1, heads=2, length=20, width=4)
    monkeypatch.setattr(blocks, "SHAPE", small)
    monkeypatch.setattr(decode, "CONTEXTS", (2, 5))
    monkeypatch.setattr(steps, "PRESET", "quick")
    found = [*cores.groups([12], ["float32", "bfloat16"], "cpu"), *blocks.groups(["float32"], "cpu"),
             *decode.groups("cpu"), *steps.groups("cpu", threads=1)]  # fmt: skip
    parts = {case.part for group in found for case in group.cases}
    assert parts == {"forward", "forward+backward", "block", "decode", "step"}
    for group in found:
        assert all(one < len(group.cases) and two < len(group.cases) for one, two in group.pairs)
        assert {one for one, _ in group.pairs} == set(range(len(group.cases)))
        for case in group.cases:
            case.make()()
    assert [case.name for case in workers.groups()[0].cases] == ["2 workers, a thread each", "1 worker, 2 threads"]


def test_the_sparse_case_has_nine_blocks_in_ten_zero_and_the_very_long_one_is_for_memory() -> None:
    shape = layers.Shape(rows=1, heads=1, length=2048, width=8)
    assert 0.8 < cores.zero_blocks(shape, "cpu") < 0.95  # nine in ten at twice the length
    shapes = [(case.shape, case.timed) for group in cores.groups([], ["float32"], "cpu") for case in group.cases]
    assert ("B1 H8 T16384 D64", False) in shapes
    assert {shape for shape, timed in shapes if timed} == {"B8 H4 T256 D32", "B2 H8 T1024 D64", "B1 H8 T4096 D64"}


def test_peak_memory_counts_what_a_call_makes_and_not_what_it_was_given() -> None:
    def make() -> Any:
        given = torch.zeros(1 << 22)
        return lambda: (given + 1).sum()

    case = Case(name="", shape="", dtype="float32", part="forward", backend="", make=make)
    memory.prepare()
    peak = memory.peak_memory(case, "cpu")
    if peak is not None:
        assert 15 << 20 < peak < 20 << 20


def test_times_are_quartiles_of_rounds_taken_in_turn() -> None:
    order: list[str] = []
    found = clock.interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds={"a": 3, "b": 2}, device="cpu"
    )
    assert set(found) == {"a", "b"}
    assert all(low <= middle <= high for low, middle, high in found.values())
    # Two rounds that do not count, then calls in turn.
    assert order[:4] == ["a", "a", "b", "b"]
    assert clock.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)


def test_the_first_of_calls_that_take_seconds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "LONG_MS", 0.0)
    order: list[str] = []
    both = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    clock.interleaved(both, rounds={"a": 3, "b": 2}, device="cpu")
    assert order == ["a", "b", "a", "b", "a"]


def test_one_call_warms_up_what_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "SLOW_MS", 0.0)
    order: list[str] = []
    both = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    clock.interleaved(both, rounds={"a": 7, "b": 3}, device="cpu")
    assert order == ["a", "b", *["a", "b"] * 3, *["a"] * 4]


def test_what_a_bar_is_about_is_timed_seven_times_and_a_reference_less() -> None:
    assert bench.Options().rounds == 7
    found = [case for group in cores.groups([], ["float32"], "cpu") for case in group.cases]
    assert {case.most_rounds for case in found if case.backend != "reference"} == {None}
    assert {case.most_rounds for case in found if case.backend == "reference"} == {cores.REFERENCE_ROUNDS}


def test_bars_take_the_worst_row_they_are_about() -> None:
    rows = [row(), row(shape="B1 H8 T4096 D64", ratio=1.1), row(name="sigmoid", ratio=1.0),
            row(name="sigmoid", shape="B1 H8 T4096 D64", ratio=1.3), row(backend="reference", ratio=9.0),
            row(name="lazy, 92% of its 64 x 64 blocks zero", shape="B1 H8 T4096 D64", ratio=0.8),
            row(shape="B1 H8 T16384 D64", ratio=None, peak_memory_bytes=(128 + 40) * 2**20),
            row(name="mamba", **{"pass": "decode"}, shape="B1 context 256 M256", against="mamba blocks", ratio=1.0),
            row(name="mamba", **{"pass": "decode"}, shape="B1 context 4096 M256", ratio=1.05,
                against="mamba blocks, B1 context 256 M256")]  # fmt: skip
    found = {bar["what"]: (bar["measured"], bar["met"]) for bar in bench.judged(rows)}
    assert found == {
        "lazy, forward + backward, B1 H8 T4096 D64, over fused softmax": (1.1, True),
        "lazy, forward + backward, B2 H8 T1024 D64, over fused softmax": (1.2, True),
        "lazy, nine blocks in ten zero, forward + backward, B1 H8 T4096 D64, over fused softmax": (0.8, True),
        "lazy, T16384: memory beyond inputs, output and gradients": (40.0, True),
        "sigmoid, forward + backward, T >= 1024, over fused softmax": (1.3, False),
        "Mamba decode step, context 4096 over 256": (1.05, True),
    }


def test_the_table_fits_a_terminal_and_tells_how_time_grows() -> None:
    long = row(shape="B1 H8 T4096 D64", median_ms=96.0, quartiles_ms=[95.0, 97.0], ratio=None)
    found = text.lines(result(row(), long, row(median_ms=None, quartiles_ms=None, share_of_peak=None)))
    assert all(len(line) <= 100 for line in found)
    assert any(line.split()[-1:] == ["2.00"] for line in found)
    assert "left out: mambapy (not here)" in found
    assert "1.5 minutes in all" in found[0]
    wrong = {**result()["machine"], "wrong": ["lazy blocked, values: no"]}
    assert text.lines({**result(), "machine": wrong})[-1] == "wrong: lazy blocked, values: no"


def test_a_gpu_gets_a_short_table_last_and_no_bars_of_a_cpu() -> None:
    rows = [row(), row(shape="B8 H4 T256 D32", ratio=1.5), row(name="softmax", backend="sdpa", ratio=1.0),
            row(name="lazy, 93% of its 64 x 64 blocks zero", ratio=0.8), row(name="mamba", backend="mamba_ssm"),
            row(dtype="bfloat16", ratio=1.3), row(ratio=None), row(**{"pass": "forward"})]  # fmt: skip
    machine = {**result()["machine"], "device": "cuda", "gpu": "a GPU", "right": ["lazy blocked", "softmax sdpa"],
               "wrong": ["mamba mamba_ssm, values: no"]}  # fmt: skip
    found = text.lines({"machine": machine, "rows": rows})
    start = next(place for place, line in enumerate(found) if line.startswith("forward + backward, over softmax sdpa"))
    # The width of the names is not what is told.
    assert [" ".join(line.split()) for line in found[start:]] == [
        "forward + backward, over softmax sdpa dtype T256 T1024",
        "lazy (blocked) float32 1.50 1.20 right",
        "softmax (sdpa) float32 — 1.00 right",
        "lazy, 93% of its 64 x 64 blocks zero (blocked) float32 — 0.80 right",
        "mamba (mamba_ssm) float32 — 1.20 wrong",
        "lazy (blocked) bfloat16 — 1.30 right",
    ]
    assert all(len(line) <= 100 for line in found) and not any("not met" in line for line in found)
    unseen = text.short([row(backend="new")], machine)
    assert unseen[-1].endswith("not checked")


def test_progress_says_the_time_so_far_and_how_many_stages_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(part: str) -> Case:
        return Case(name="x", shape="T1", dtype="float32", part=part, backend="b", make=lambda: lambda: None)

    groups = [Group([made("forward")], [(0, 0)]), Group([made("decode")], [(0, 0)])]
    monkeypatch.setattr(benchmark, "_groups", lambda *_: groups)
    monkeypatch.setattr(benchmark, "examined", lambda device: {"right": [], "wrong": []})
    monkeypatch.setattr(memory, "peak_memory", lambda *_: 1)
    monkeypatch.setattr(clock, "peak_flops", lambda *_: 1.0)
    told: list[str] = []
    found = bench.bench(bench.Options(), told.append)
    assert [line.split("  ")[1:] for line in told] == [
        ["1 of 5", "memory of forward, T1, float32"],
        ["2 of 5", "the peak of a matrix product"],
        ["3 of 5", "whether every backend is right"],
        ["4 of 5", "time of forward, T1, float32"],
        ["5 of 5", "time of decode of x"],
    ]
    assert [line.split("  ")[0].count(":") for line in told] == [1] * 5
    assert found["machine"]["seconds"] >= 0 and [row["peak_memory_bytes"] for row in found["rows"]] == [1, None]


def test_a_backend_that_breaks_a_claim_is_wrong_and_one_that_was_not_tried_is_not_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    findings = [Finding("values", "a", True), Finding("gradients", "a", False, "no"), Finding("values", "b", True),
                Finding("bfloat16", "b", None, "takes none"), Finding("backend", "c", None, "not here")]  # fmt: skip
    monkeypatch.setattr(benchmark, "examine", lambda spec, *_, **__: findings if spec.name == "lazy" else [])
    found = benchmark.examined("cpu")
    assert found == {"right": ["lazy b"], "wrong": ["lazy a, gradients: no"]}


def test_two_ways_to_compute_one_core_are_two_lines_of_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[str]] = []

    def saved(figure: Any, ending: str) -> bytes:
        drawn.append([line.get_label() for line in figure.axes[0].lines])
        drawn.append([tick.get_text() for tick in figure.axes[1].get_yticklabels()])
        return b""

    monkeypatch.setattr(bench_figure, "saved", saved)
    layer = {"pass": "block", "shape": "B8 T512 M256"}
    bench_figure.draw_bench([row(backend="fla"), row(), row(name="mamba", backend="blocks"),
                             row(**layer), row(**layer, dtype="bfloat16")], "svg")  # fmt: skip
    assert drawn[0] == ["lazy fla", "lazy blocked", "mamba"]
    assert drawn[1] == ["lazy / softmax", "lazy / softmax, bfloat16"]


def test_a_peer_that_is_not_installed_is_left_out_with_its_reason() -> None:
    for name in peers.NAMES:
        reason = peers.missing(name)
        assert reason is None or "pip install" in reason
    assert isinstance(blocks.groups(["float32"], "cpu")[0], Group)
