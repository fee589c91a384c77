"""Mixers, files and numbers that once gave a wrong number, a traceback or a table without a word of warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness import experiment
from harness.arms import parse
from harness.errors import UsageError
from harness.execute import Options
from harness.experiment import Request, plan
from harness.registry import load
from harness.train import Moment, train
from harness.train import loop as loop_module
from tests import cli
from tests.tiny import SOURCE, run

HEAD = """
from __future__ import annotations
import random
from dataclasses import dataclass
import numpy as np
import torch
from torch import nn
from harness.spec import MixerSpec, choice
@dataclass(frozen=True, kw_only=True)
class Config:
    fault: str = choice("none", "peek", "leak", "numpy", "mask", "whole", "poison", "print")
class Layer(nn.Module):
    def __init__(self, dims, config, *, layer_index, core):
        super().__init__()
        self.fault = config.fault
        self.lin = nn.Linear(dims.model_dim, dims.model_dim)
    def forward(self, x, shared):
        y = self.lin(x)
        if self.fault == "peek":
            return torch.cat([y[:, 1:], y[:, -1:]], dim=1)
        if self.fault == "leak":
            return y.mean(0, keepdim=True).expand_as(y)
        if self.fault == "numpy":
            return y * float(np.random.rand())
        if self.fault == "mask" and not hasattr(self, "mask"):
            self.register_buffer("mask", torch.ones(x.shape[1], 1))
        if self.fault == "whole":
            return y.long()
        if self.fault == "poison":
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
        if self.fault == "print":
            print("hello from the mixer")
        return y
SPEC = MixerSpec(name="odd", Config=Config, Layer=Layer)
"""


class _Killed(Exception):
    pass


@pytest.fixture
def mixer(tmp_path: Path) -> Path:
    (tmp_path / "odd.py").write_text(HEAD)
    return tmp_path / "odd.py"


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "load", lambda corpus, tokenizer, cache: SOURCE)


def planned(*names: str, **more: Any) -> Any:
    return plan(Request(name="t", arms=names, **more), cuda=False)


@pytest.mark.parametrize(("fault", "said"), [("peek", "sees the future"), ("leak", "see each other")])
def test_a_model_that_cheats_is_a_failed_run_and_not_the_best_row(mixer: Path, fault: str, said: str) -> None:
    outcome = train(run(f"{mixer}[fault={fault}]"), SOURCE)
    assert outcome.status == "leaks" and outcome.error is not None and said in outcome.error


@pytest.mark.parametrize("arm", ["softmax", "lazy", "mamba", "sigmoid", "stick_breaking", "lazy[train.dtype=float32]"])
def test_an_honest_model_leaks_nothing(arm: str) -> None:
    if "dtype" in arm:
        with pytest.raises(UsageError):
            parse(arm)
    else:
        assert train(run(arm, train__steps=30, train__learning_rate=0.03), SOURCE).status == "ok"


def _stopped_and_resumed(arm: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    monkeypatch.setattr(loop_module, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)

    def die(moment: Moment) -> None:
        if moment.step == 4:
            raise _Killed

    whole = train(run(arm), SOURCE)
    with pytest.raises(_Killed):
        train(run(arm), SOURCE, callbacks=[die], checkpoint=path)
    np.random.rand(7)
    return whole, train(run(arm), SOURCE, checkpoint=path)


@pytest.mark.parametrize("fault", ["numpy", "mask"])
def test_numpys_stream_and_late_buffers_survive_a_kill(
    mixer: Path, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, resumed = _stopped_and_resumed(f"{mixer}[fault={fault}]", tmp_path / "c.pt", monkeypatch)
    assert resumed.metrics == whole.metrics and resumed.curve == whole.curve


def test_a_mixer_that_returns_whole_numbers_is_refused(mixer: Path) -> None:
    with pytest.raises(ValueError, match="floating point"):
        train(run(f"{mixer}[fault=whole]"), SOURCE)


def test_what_a_mixer_does_to_its_process_or_prints_reaches_no_other_arm(mixer: Path, tmp_path: Path) -> None:
    arms = ("softmax", f"{mixer}[fault=poison]", f"{mixer}[fault=print]")
    done = cli.experiment("compare", *arms, out=tmp_path / "all", extra=("--seeds", "2", "--workers", "1", "--json"))
    alone = cli.experiment("compare", "softmax", out=tmp_path / "one", extra=("--seeds", "2", "--json"))
    assert done.returncode == 1 and alone.returncode == 0
    assert cli.payload(done)["arms"][0]["val_loss_nats"] == cli.payload(alone)["arms"][0]["val_loss_nats"]


def test_what_a_mixer_does_to_its_process_or_prints_reaches_no_other_search(mixer: Path, tmp_path: Path) -> None:
    arms = (f"{mixer}[fault=poison]", f"{mixer}[fault=print]", "softmax")
    search = ("--trials", "1", "--workers", "1", "--json", "--space", "learning_rate=5e-3:3e-2")
    done = cli.experiment("tune", *arms, out=tmp_path / "all", extra=search)
    alone = cli.experiment("tune", "softmax", out=tmp_path / "one", extra=search)
    assert alone.returncode == 0, alone.stderr
    assert cli.payload(done)["variants"][-1]["best_value"] == cli.payload(alone)["variants"][0]["best_value"]


def test_two_equal_files_with_different_neighbours_are_two_mixers(tmp_path: Path) -> None:
    for folder, scale in (("one", "1.0"), ("two", "3.0")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "variants_helper.py").write_text(f"scale = {scale}\n")
        (tmp_path / folder / "mine.py").write_text(HEAD + "from variants_helper import scale\n")
    one, two = (load(tmp_path / folder / "mine.py") for folder in ("one", "two"))
    assert one.file_hash != two.file_hash
    assert (one.spec.Layer.forward.__globals__["scale"], two.spec.Layer.forward.__globals__["scale"]) == (1.0, 3.0)


def test_what_belongs_to_a_file_depends_neither_on_its_neighbours_nor_on_when_it_is_imported(mixer: Path) -> None:
    alone = load(mixer).file_hash
    (mixer.parent / "helper.py").write_text("x = 1\n")
    (mixer.parent / "other.py").write_text(HEAD + "import helper\n")
    load(mixer.parent / "other.py")
    assert load(mixer).file_hash == alone
    late = mixer.parent / "late.py"
    late.write_text(HEAD + "def f():\n    import helper\n    return helper.x\n")
    before = load(late).file_hash
    (mixer.parent / "helper.py").write_text("x = 2\n")
    assert load(late).file_hash != before


def test_files_of_one_name_in_two_folders_are_two_arms(mixer: Path, tmp_path: Path, letters: None) -> None:
    (tmp_path / "b").mkdir()
    other = tmp_path / "b" / "odd.py"
    other.write_text(HEAD + "# another\n")
    labels = [arm.label for arm in planned(str(mixer), f"{other}[fault=peek]", str(other)).arms]
    assert labels[0] == str(mixer) and labels[2] == str(other) and len(set(labels)) == 3
    assert planned(str(mixer), str(other), baseline=str(other)).baseline == str(other)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("class Config:\n    x: Undefined = 1\n", "annotations"), ("class Config:\n    x: float = float('nan')\n", "x=nan"),
        ("class Config:\n    x: int = 'abc'\n", "x=abc"), ("class Config:\n    x: int\n", "needs a default"),
    ],
)  # fmt: skip
def test_an_odd_config_is_refused_with_its_file(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "bad.py"
    body = HEAD.replace("class Config:\n", "class Old:\n").replace(
        "class Layer", f"@dataclass(frozen=True, kw_only=True)\n{content}class Layer"
    )
    file.write_text(body)
    with pytest.raises(UsageError, match=said) as refused:
        load(file)
    assert "bad.py" in str(refused.value)


@pytest.mark.parametrize(
    ("sets", "arms", "said"),
    [
        ({"train.steps": "9" * 400}, ("softmax",), "allowed is"), ({"train.seed": "5"}, ("softmax",), "--seeds"),
        ({"data.curve_points": "1000000000000"}, ("softmax",), "allowed is"),
        ({}, (f"lazy[bias_length={10**30}]",), "allowed is"),
    ],
)  # fmt: skip
def test_numbers_out_of_all_proportion_are_one_line(
    sets: dict[str, str], arms: tuple[str, ...], said: str, letters: None
) -> None:
    with pytest.raises(UsageError, match=said):
        planned(*arms, sets=sets)


def test_a_model_too_large_for_this_machine_is_planned_without_building_it(letters: None) -> None:
    assert planned("softmax", "mamba", sets={"model.model_dim": "4000000"}).arms


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_is_a_mistake(workers: int) -> None:
    with pytest.raises(UsageError, match="--workers"):
        Options(workers=workers)


def test_too_many_seeds_is_a_mistake(letters: None) -> None:
    with pytest.raises(UsageError, match="--seeds"):
        planned("softmax", seeds=30_000_000)


def test_a_file_with_a_space_in_its_name_can_be_taken_apart(tmp_path: Path) -> None:
    file = tmp_path / "my mixer.py"
    file.write_text(HEAD.replace('choice("none"', 'choice("none"').replace(
        "from harness.spec import MixerSpec, choice", "from harness.spec import MixerSpec, choice, switch"
    ).replace("class Layer", "    gate: bool = switch(True, off=False, removes='a gate')\nclass Layer"))  # fmt: skip
    done = cli.experiment("ablate", str(file), out=tmp_path / "out", extra=("--seeds", "1"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "experiments").glob("ablate-my-mixer-*.json")


def test_a_damaged_experiment_is_named_when_nothing_else_is_there(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "compare-00000000.json").write_text("{")
    done = cli.run("report", "compare", "--out", str(tmp_path))
    assert done.returncode == 2 and "compare-00000000.json" in done.stderr


def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    os.mkfifo(tmp_path / "experiments" / "compare-00000000.json")
    assert cli.run("report", "compare", "--out", str(tmp_path)).returncode == 2


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "run.py", "list", "--json"], cwd=cli.ROOT, env=cli.ENVIRONMENT,
                              stdout=full, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert torch.get_default_dtype() == torch.float32
