from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import cli

WITHOUT_MAPS = '''
"""Shift: y_t = x_{t-1}. Source: none."""
from dataclasses import dataclass
import torch
from harness.spec import MixerSpec

@dataclass(frozen=True, kw_only=True)
class Config:
    pass

class Layer(torch.nn.Module):
    def __init__(self, dims, config, *, layer_index, core):
        super().__init__()
        self.o = torch.nn.Linear(dims.model_dim, dims.model_dim, bias=False)

    def forward(self, x, shared):
        return self.o(torch.nn.functional.pad(x, (0, 0, 1, -1)))

SPEC = MixerSpec(name="shift", Config=Config, Layer=Layer)
'''
# Enough steps to end below the uniform loss: a run that does not has no weights.
SMALL = ("--seeds", "1", "--workers", "1", "--set", "train.steps=12", "--set", "train.learning_rate=0.02")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison on the task, looked at while it trained."""
    out = tmp_path_factory.mktemp("task") / "out"
    extra = (*SMALL, "--task", "backcopy", "--measure-every", "6")
    done = cli.experiment("compare", "softmax", "lazy", out=out, extra=extra)
    assert done.returncode == 0, done.stderr
    return out


def measurements(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "measurements").glob("*.json"))


def test_a_task_is_judged_on_its_own_metric_with_its_version_in_every_record(task: Path) -> None:
    records = cli.records(task)
    assert len(records) == 2
    for record in records.values():
        assert {"trigger_loss_nats", "other_loss_nats", "val_loss_nats"} <= set(record["metrics"])
    assert all('"corpus": "backcopy-1' in path.read_text() for path in (task / "runs").glob("*.json"))
    table = next((task / "tables").glob("compare-backcopy-*.md")).read_text()
    assert "trigger loss (nats/token)" in table and "backcopy-1" in table and "Plain softmax parks" in table


def test_measuring_completes_what_training_left_and_does_nothing_twice(task: Path) -> None:
    assert len(measurements(task)) == 2 * 2 * 9  # runs x looks x measures
    first = cli.run("measure", "compare-backcopy", "--out", str(task), "--json")
    assert first.returncode == 0, first.stderr
    found = cli.payload(first)
    assert set(found["arms"]) == {"softmax", "lazy"}
    softmax = found["arms"]["softmax"]
    assert softmax["sink"][0]["small_probe"] is False and "loss_nats_at_8x" in softmax["extrapolation"][0]
    assert "not reproduced" in found["remarks"][0] or "sink present" in found["remarks"][0]
    before = measurements(task)
    # Nothing is left to do, and so no weights are needed.
    (task / "weights").rename(task / "hidden")
    again = cli.run("measure", "compare-backcopy", "--out", str(task))
    (task / "hidden").rename(task / "weights")
    assert again.returncode == 0, again.stderr
    assert measurements(task) == before and "measured already" in again.stderr
    assert "Sink_1" in again.stdout and "row mass" in again.stdout


def test_the_report_of_a_task_has_a_page(task: Path) -> None:
    done = cli.run("report", "compare-backcopy", "--html", "--json", "--out", str(task))
    found: Any = cli.payload(done)
    page = Path(cli.ROOT / found["page"])
    assert page.exists() and len(found["figures"]) >= 16 and "<figure" in page.read_text()


def test_looks_that_recorded_runs_cannot_give_any_more_are_said(task: Path) -> None:
    extra = (*SMALL, "--task", "backcopy", "--measure-every")
    seen = cli.experiment("compare", "softmax", "lazy", out=task, extra=(*extra, "6"))
    late = cli.experiment("compare", "softmax", "lazy", out=task, extra=(*extra, "5"))
    assert seen.returncode == late.returncode == 0 and "--measure-every" not in seen.stderr
    [line] = [line for line in late.stderr.splitlines() if "--measure-every 5" in line]
    assert "2 of 2 are recorded already" in line and "another folder" in line and f"--out {task}" in line


def one_line(done: Any, said: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == "" and said in done.stderr and "Traceback" not in done.stderr
    assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1


def test_mistakes_are_one_line_and_exit_2(task: Path) -> None:
    out = str(task)
    one_line(cli.run("measure", "nothing", "--out", out), "no recorded experiment")
    one_line(cli.run("measure", "compare-backcopy", "--only", "snik", "--out", out), "did you mean 'sink'")
    one_line(cli.run("compare", "softmax", "--task", "backcpy"), "did you mean 'backcopy'")
    one_line(cli.run("compare", "softmax", "--measure-every", "0"), "at least 1")
    one_line(cli.run("compare", "softmax", "--task", "backcopy", "--set", "data.length=4"), "at least 8 tokens")


def test_a_run_without_weights_cannot_be_measured(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert cli.experiment("compare", "softmax", out=out, extra=(*SMALL, "--keep-weights", "none")).returncode == 0
    one_line(cli.run("measure", "compare", "--out", str(out)), "has no weights at")


def test_an_arm_without_maps_costs_no_other_arm_its_maps(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "shift.py"
    file.write_text(WITHOUT_MAPS)
    assert cli.experiment("compare", "softmax", str(file), out=out, extra=SMALL).returncode == 0
    done = cli.run("measure", "compare", "--only", "sink", "mass", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    plain, shift = cli.payload(done)["arms"].values()
    assert plain["sink"][0]["sink_1_percent"] >= 0 and plain["mass"][0]["row_mass_mean"] > 0.99
    assert "gives no attention map" in shift["sink"][0]["not_defined"]


def test_weights_that_cannot_be_read_cost_no_other_run_its_measures(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert cli.experiment("compare", "softmax", "sigmoid", out=out, extra=SMALL).returncode == 0
    first = cli.run("measure", "compare", "--only", "scalars", "--out", str(out), "--json")
    [one, *_] = sorted((out / "weights").glob("*.safetensors"))
    one.write_bytes(b"cut")
    done = cli.run("measure", "compare", "--only", "collapse", "--out", str(out))
    one_line(done, "no usable weights")
    assert first.returncode == 0 and sum("collapse" in name for name in measurements(out)) == 1


def test_a_variant_without_maps_says_what_can_be_measured_instead(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "shift.py"
    file.write_text(WITHOUT_MAPS)
    extra = (*SMALL, "--set", "model.positions=learned", "--measure-every", "4")
    assert cli.experiment("compare", str(file), out=out, extra=extra).returncode == 0
    done = cli.run("measure", "compare", "--out", str(out))
    one_line(done, "shift gives no attention map")
    rest = done.stderr.rpartition("--only ")[2].split()
    assert {"collapse", "scale", "recall"} <= set(rest)
    assert cli.run("measure", "compare", "--only", *rest[:2], "--out", str(out)).returncode == 0
    longer = cli.run("measure", "compare", "--only", "extrapolation", "--out", str(out))
    one_line(longer, "learned positions end at the training length")
