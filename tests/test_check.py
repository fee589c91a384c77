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
from tests.outsiders import FAULTS, FULL, HEAD, LEAVES, PEEKS, SPEC


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


def test_what_kept_a_claim_from_being_tried_is_broken_though_not_asked_for(tmp_path: Path) -> None:
    found = check(write(tmp_path, LEAVES), "causal")
    assert found["passed"] is False
    assert {line["name"]: line["passed"] for line in found["checks"]} == {
        f"{name}{config}": passed
        for config in ("", " [gate=off]")
        for name, passed in {"untouched": False, "causal": None}.items()
    }


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
