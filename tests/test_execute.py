from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import cli

BROKEN = """
from dataclasses import dataclass
import os, signal
from torch import nn
from harness.spec import MixerSpec, choice
@dataclass(frozen=True, kw_only=True)
class Config:
    fault: str = choice("raise", "shape", "killed", "nan", "memory")
class Layer(nn.Module):
    def __init__(self, dims, config, *, layer_index, core):
        super().__init__()
        self.fault = config.fault
        self.lin = nn.Linear(dims.model_dim, dims.model_dim)
    def forward(self, x, shared):
        if self.fault == "raise":
            raise RuntimeError("the mixer gave up")
        if self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "memory":
            raise MemoryError
        return self.lin(x)[:, :1] if self.fault == "shape" else self.lin(x) * float("nan")
SPEC = MixerSpec(name="broken", Config=Config, Layer=Layer)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment that ran without a fault."""
    out = tmp_path_factory.mktemp("whole") / "out"
    done = cli.experiment("compare", "softmax", "flash", "lazy", out=out, extra=("--seeds", "2"))
    assert done.returncode == 0, done.stderr
    (out / "stdout").write_text(done.stdout)
    return out


def test_running_again_trains_nothing_and_prints_the_same_table(whole: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in (whole / "runs").iterdir()}
    again = cli.experiment("compare", "softmax", "flash", "lazy", out=whole, extra=("--seeds", "2"))
    assert again.returncode == 0
    assert again.stdout == (whole / "stdout").read_text()
    assert {file: file.stat().st_mtime_ns for file in (whole / "runs").iterdir()} == before


def test_report_prints_the_same_table_from_records_alone(whole: Path) -> None:
    assert cli.run("report", "compare", "--out", str(whole)).stdout == (whole / "stdout").read_text()


def test_the_table_lies_beside_the_records_as_markdown_and_csv(whole: Path) -> None:
    assert {file.suffix for file in (whole / "tables").iterdir()} == {".md", ".csv"}


def test_weights_are_kept_and_checkpoints_are_not(whole: Path) -> None:
    assert len(list((whole / "weights").glob("*.safetensors"))) == 4
    assert list((whole / "checkpoints").iterdir()) == []


def test_the_json_has_its_schema(whole: Path) -> None:
    found = cli.payload(cli.run("report", "compare", "--out", str(whole), "--json"))
    assert {"experiment", "corpus", "baseline", "arms", "references"} <= set(found)
    assert set(found["corpus"]) >= {"name", "sha256"}
    arm = found["arms"][2]
    assert set(arm) >= {"name", "variant", "config", "parameters", "seeds", "val_loss_nats", "val_bits_per_byte",
                        "difference", "resolvable", "verdict", "failed", "backend", "records"}  # fmt: skip
    assert set(arm["val_loss_nats"]) == {"mean", "low", "high"}
    assert set(arm["difference"]) == {"mean", "low", "high", "p"}
    assert found["arms"][1]["records"] == found["arms"][0]["records"]


def test_a_truncated_and_a_foreign_record_are_named_skipped_and_kept(whole: Path, tmp_path: Path) -> None:
    victim = sorted((whole / "runs").glob("*.json"))[0]
    content = victim.read_bytes()
    try:
        victim.write_bytes(content[:100])
        (whole / "runs" / "foreign.json").write_text("{}")
        done = cli.run("report", "compare", "--out", str(whole))
        assert victim.name in done.stderr
        assert victim.read_bytes() == content[:100]
    finally:
        victim.write_bytes(content)
        (whole / "runs" / "foreign.json").unlink()


FAULTS = {"raise": "the mixer gave up", "shape": "the same shape", "nan": "diverged", "killed": "signal 9",
          "memory": "out of memory"}  # fmt: skip


@pytest.mark.parametrize(("fault", "status"), FAULTS.items())
def test_a_mixer_that_fails_is_a_row_and_the_others_go_on(fault: str, status: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    arm = f"{tmp_path / 'broken.py'}[fault={fault}]"
    done = cli.experiment("compare", "softmax", arm, out=tmp_path / "out", extra=("--seeds", "1", "--json"))
    assert done.returncode == 1, done.stderr
    softmax, broken = cli.payload(done)["arms"]
    assert softmax["failed"] == 0 and softmax["val_loss_nats"]["mean"] > 0
    assert (broken["failed"] == 1 and broken["val_loss_nats"] is None) or broken["val_loss_nats"]["mean"] is None
    assert status in done.stderr


def test_a_rate_far_too_high_is_a_row_called_diverged(tmp_path: Path) -> None:
    extra = ("--seeds", "1", "--set", "train.steps=30")
    done = cli.experiment("compare", "softmax", "softmax[train.learning_rate=1000]", out=tmp_path / "out", extra=extra)
    assert done.returncode == 1
    assert "diverged" in done.stdout


def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))

    done = cli.experiment("compare", "softmax", out=tmp_path / "out", extra=("--seeds", "1", "--keep-weights", "none"),
                          preexec_fn=little_room)  # fmt: skip
    assert done.returncode == 2
    assert "was not written" in done.stderr and "Traceback" not in done.stderr
    assert list((tmp_path / "out" / "runs").glob("*.json")) == []


def test_two_processes_at_once_train_each_run_once(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = cli.arguments("compare", "softmax", "flash", "lazy", out=out, extra=("--seeds", "2", "--json"))
    both = [subprocess.Popen(command, cwd=cli.ROOT, env=cli.ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)]  # fmt: skip
    printed = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    assert cli.records(out) == cli.records(whole)
    first, second = (json.loads(stdout) for stdout, _ in printed)
    assert first["arms"] == second["arms"]


def _start(out: Path, *, seeds: int = 2, **more: Any) -> subprocess.Popen[bytes]:
    command = cli.arguments("compare", "softmax", "flash", "lazy", out=out, extra=("--seeds", str(seeds)))
    return subprocess.Popen(command, cwd=cli.ROOT, env=cli.ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            start_new_session=True, **more)  # fmt: skip


def _until(process: subprocess.Popen[bytes], word: bytes) -> None:
    lines: list[bytes] = []
    for line in process.stderr or []:
        lines.append(line)
        if word in line:
            return
    raise AssertionError(f"{word!r} was never said: {lines}")


@pytest.mark.parametrize("word", [b"to train", b"[1/4]", b"[3/4]"])
def test_an_experiment_killed_by_sigkill_goes_on_to_the_same_records(word: bytes, whole: Path, tmp_path: Path) -> None:
    process = _start(tmp_path / "out")
    _until(process, word)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    again = cli.experiment("compare", "softmax", "flash", "lazy", out=tmp_path / "out", extra=("--seeds", "2"))
    assert again.returncode == 0, again.stderr
    assert cli.records(tmp_path / "out") == cli.records(whole)


def test_ctrl_c_keeps_finished_runs_and_prints_the_partial_table(tmp_path: Path) -> None:
    # So many runs that they cannot end while the signal is on its way.
    process = _start(tmp_path / "out", seeds=60)
    _until(process, b"[1/120]")
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"softmax" in stdout and b"the same command goes on" in stderr and b"Traceback" not in stderr
    assert 1 <= len(cli.records(tmp_path / "out")) < 120


def test_workers_end_when_their_parent_is_gone(tmp_path: Path) -> None:
    extra = ("--seeds", "1", "--workers", "1", "--set", "train.steps=100000")
    command = cli.arguments("compare", "softmax", out=tmp_path / "out", extra=extra)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=cli.ROOT, env=cli.ENVIRONMENT, start_new_session=True, **pipes)
    _until(process, b"to train")
    process.kill()
    # The pipes close only when every process that holds them has ended, the worker included.
    process.communicate(timeout=120)
    assert cli.records(tmp_path / "out") == {}
