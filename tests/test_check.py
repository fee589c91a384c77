"""`check` on an outsider's files: what is broken is named, what is not given is said, the rest passes."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import report
from harness.commands import check as verb
from harness.contract import Finding
from harness.contract.examine import DIMS
from harness.errors import UsageError
from tests import cli

HEAD = '''"""Attention of an outsider.

    o_i = sum_{j<=i} softmax_j(q_i.k_j / sqrt(D)) v_j

Source: nowhere.
"""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from harness.spec import Backend, Cost, MixerSpec, Work, switch


@dataclass(frozen=True, kw_only=True)
class Config:
    gate: bool = switch(True, off=False, removes="the gate")


def attention(q, k, v):
    scores = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1])
    return torch.einsum("bhts,bshd->bthd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)


class Layer(nn.Module):
    def __init__(self, dims, config, *, layer_index, core):
        super().__init__()
        self.heads, self.core, self.gated = dims.num_heads, core or attention, config.gate
        self.qkv = nn.Linear(dims.model_dim, 3 * dims.model_dim, bias=False)
        self.o = nn.Linear(dims.model_dim, dims.model_dim, bias=False)

    def inputs(self, x, shared):
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.qkv(x).chunk(3, dim=-1))
        return {"q": q, "k": k, "v": v}

    def forward(self, x, shared):
        y = self.core(**self.inputs(x, shared)).flatten(-2)
        return self.o(y * x.sigmoid() if self.gated else y)

    def step(self, x, state, shared):
        new = self.inputs(x, shared)
        k, v = new["k"], new["v"]
        if state is not None:
            k, v = torch.cat([state[0], k], 1), torch.cat([state[1], v], 1)
        y = self.core(new["q"], k, v).flatten(-2)
        return self.o(y * x.sigmoid() if self.gated else y), (k, v)

'''
SPEC = 'SPEC = MixerSpec(name="mine", Config=Config, Layer=Layer{more})\n'
FULL = ', reference=attention, backends=(Backend(name="own_kernel", run={core}),)'

PEEKS = """
class Layer(Layer):
    def forward(self, x, shared):
        return super().forward(x, shared) + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1))
"""
LEAKS = """
class Layer(Layer):
    def forward(self, x, shared):
        y = super().forward(x, shared) + shared.get("mean", 0.0)
        shared["mean"] = 0.1 * x.mean(1, keepdim=True)
        return y
"""
DRIFTS = """
class Layer(Layer):
    def step(self, x, state, shared):
        y, (k, v) = super().step(x, state, shared)
        return y, (k, v * 1.0005)
"""
WRONG_GRADIENT = """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * (1 + 0.01 * (torch.arange(g.shape[-2]) == HEAD)).to(g)[:, None]


def kernel(q, k, v):
    return attention(q, Scaled.apply(k), v)
"""
WRONG_HEAD = """
def kernel(q, k, v):
    y = attention(q, k, v)
    return y * (1 + 0.001 * (torch.arange(y.shape[-2]) == HEAD)).to(y)[:, None]
"""
BATCH = """
class Layer(Layer):
    def forward(self, x, shared):
        return super().forward(x, shared) + 0.1 * x.mean(0, keepdim=True)
"""
ONLY_OFF = """
class Layer(Layer):
    def forward(self, x, shared):
        y = super().forward(x, shared)
        return y if self.gated else y + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1))
"""
COST = """
def cost(dims, config, length):
    size = dims.model_dim**2
    work = Work(products=8.0 * size + 2 * (length + 1) * dims.model_dim)
    return Cost(forward=work, decode=work, state_bytes=8 * length * dims.model_dim, parameters=4 * size + 1)
"""

# What is planted, how the file ends, the claim that names it, the backend, and what is said.
FAULTS: dict[str, tuple[str, str, str, str, str]] = {
    "peeking": (PEEKS, FULL, "causal", "own_kernel", "y at position 0 depends on x at position 1: gradient"),
    "leaking": (LEAKS, FULL, "causal", "own_kernel", "position 0 depends on x at position 1"),
    "drifting in decode": (DRIFTS, FULL, "step", "own_kernel", "y token by token at position 1,"),
    "mixing rows": (BATCH, FULL, "batch", "own_kernel", "y with the other row changed at position 0"),
    "peeking with a switch off": (ONLY_OFF, "", "causal [gate=off]", "own", "position 0 depends on x at position 1"),
    "a wrong cost": (COST, FULL + ", cost=cost", "cost", "", "it says 4,097 parameters, the layer has 4,096"),
}
for head in range(DIMS.num_heads):
    FAULTS[f"head {head} wrong"] = (
        WRONG_HEAD.replace("HEAD", str(head)),
        FULL,
        "values",
        "own_kernel",
        f"the output at position 0, head {head},",
    )
    FAULTS[f"head {head} with a wrong gradient"] = (
        WRONG_GRADIENT.replace("HEAD", str(head)),
        FULL,
        "gradients",
        "own_kernel",
        f"the gradient of k at position 0, head {head},",
    )


def write(folder: Path, body: str = "", more: str = FULL) -> Path:
    core = "kernel" if "def kernel" in body else "attention"
    file = folder / "mine.py"
    file.write_text(HEAD + body + "\n\n" + SPEC.format(more=more.format(core=core)))
    return file


def check(file: Path, *claims: str) -> dict[str, Any]:
    (checked,) = verb.check([str(file)], claims, lambda word: None)
    return checked.payload()


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_an_outsiders_broken_mixer_is_named_rightly(fault: str, tmp_path: Path) -> None:
    body, more, claim, backend, says = FAULTS[fault]
    found = check(write(tmp_path, body, more))
    assert found["passed"] is False
    named = {(c["name"], c["backend"]): c["detail"] for c in found["checks"] if c["passed"] is False}
    assert says in named[claim, backend]
    assert "docstring" not in {name for name, _ in named}


def test_a_sound_file_passes_and_what_it_lacks_is_not_given(tmp_path: Path) -> None:
    found = check(write(tmp_path, more=""))
    assert found["passed"] is True
    assert all(set(line) == {"name", "backend", "passed", "detail"} for line in found["checks"])
    absent = {line["name"]: line["detail"] for line in found["checks"] if line["passed"] is None}
    assert absent["values"] == "no reference is given" and absent["cost"] == "no cost is given"
    assert {line["name"] for line in found["checks"]} > {"causal", "step", "causal [gate=off]"}


def test_a_claim_of_equality_is_tried_and_a_false_one_is_said(tmp_path: Path) -> None:
    file = write(tmp_path)
    file.write_text(file.read_text().replace('removes="the gate"', 'removes="the gate", equals="softmax"'))
    found = check(file, "equals")
    assert found["passed"] is False
    (line,) = found["checks"]
    assert line["name"] == "equals softmax [gate=off]" and "differs by up to" in line["detail"]


def test_shipped_variants_and_an_arm_of_one_pass_as_a_table() -> None:
    done = cli.run("check", "softmax", "lazy[elastic=off]", "--claim", "causal", "--claim", "equals")
    assert done.returncode == 0
    assert f"width {DIMS.model_dim}, {DIMS.num_heads} heads" in done.stdout
    assert "softmax  passed" in done.stdout and "lazy[elastic=off]  passed" in done.stdout
    assert "with bias=off,elastic=off: equals softmax" in done.stdout
    assert "with bias=off,elastic=off,rope=off: equals softmax[positions=none]" in done.stdout
    assert "not tried: flash_attn runs on cuda, not on cpu" in done.stdout


def test_a_narrow_screen_keeps_every_outcome() -> None:
    from rich.console import Console

    found = {"default": [Finding("causal", "blocked", True), Finding("causal", "reference", False, "x")]}
    found["a=off,b=off,c=off"] = [Finding("equals softmax[positions=none,window=7]", "blocked", True)]
    console = Console(width=60, file=io.StringIO())
    console.print(report.checks("mine", found, 1.0, "width 8, 2 heads"))
    told = console.file.getvalue()
    assert "passed" in told.splitlines()[2] and "BROKEN" in told and "…" not in told


def test_a_broken_claim_stands_in_the_table_with_its_place(tmp_path: Path) -> None:
    done = cli.run("check", str(write(tmp_path, PEEKS)), "--claim", "causal")
    assert done.returncode == 1 and "BROKEN" in done.stdout
    assert "! causal (own_kernel): at length 7, y at position 0 depends on x at position 1" in done.stdout


def test_check_bites_under_optimised_python_and_prints_json_alone(tmp_path: Path) -> None:
    file = str(write(tmp_path, PEEKS))
    command = [sys.executable, "-O", "run.py", "check", file, "--claim", "causal", "--json"]
    done = subprocess.run(command, cwd=cli.ROOT, env=cli.ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    found = cli.payload(done)
    assert set(found) == {"variant", "passed", "checks"} and found["variant"] == file
    assert all(line["passed"] is False for line in found["checks"])


def test_a_mistake_on_the_command_line_is_one_line_and_exit_2() -> None:
    done = cli.run("check", "softmax", "--claim", "casual")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'causal'" in done.stderr and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["softmx"], "did you mean 'softmax'"),
        (["nothing.py"], "nothing.py"),
        ([], "name a variant"),
    ],
)
def test_what_cannot_be_checked_is_said_before_the_first_claim(names: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        verb.check(names, [], lambda word: None)


@pytest.mark.parametrize(("text", "says"), [("x = 1\n", "exports no SPEC"), ("raise KeyError\n", "fails on import")])
def test_a_file_without_a_spec_or_that_raises_is_said(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(text)
    with pytest.raises(UsageError, match=says):
        verb.check([str(tmp_path / "other.py")], [], lambda word: None)
