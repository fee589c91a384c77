"""The manifest of a results folder: what a reader needs to take a number from it and build it again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from harness import report
from harness.arms import apart, parse
from harness.registry import experiments
from harness.report.manifest import write_manifest
from tests import cli
from tests.fakes import PARTS, SAME, study


def test_the_manifest_names_question_command_runs_and_verdict(tmp_path: Path) -> None:
    experiment, store = study(tmp_path, PARTS, same=SAME, command="python run.py compare")
    (found,) = json.loads(write_manifest(store).read_text()).values()
    assert (found["question"], found["command"]) == (experiment.question, "python run.py compare")
    assert set(found["runs"]) == {id for arm in experiment.arms for id in arm["ids"]}
    assert found["hours"] == round(len(found["runs"]) * 12.5 / 3600, 3)
    assert found["verdict"].startswith("against softmax: lazy worse (+0.0704 ± ")
    assert "lazy[elastic=off] better (-0.03" in found["verdict"] and "flash" not in found["verdict"]


def test_the_manifest_holds_the_sum_of_each_table_and_is_the_same_when_rebuilt(tmp_path: Path) -> None:
    experiment, store = study(tmp_path, PARTS)
    tables = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in report.write_tables(experiment, store)
    }
    path = write_manifest(store)
    before = path.read_bytes()
    assert json.loads(before)[experiment.stem]["tables"] == dict(sorted(tables.items()))
    assert write_manifest(store).read_bytes() == before


def test_arms_that_failed_or_are_missing_have_a_word_in_the_verdict(tmp_path: Path) -> None:
    outcomes = {
        "softmax": [2.0, 2.1],
        "lazy": ["diverged: too high", "diverged: too high"],
        "lazy[bias=off]": [None, None],
    }
    _, store = study(tmp_path, outcomes)
    (found,) = json.loads(write_manifest(store).read_text()).values()
    assert found["verdict"] == "against softmax: lazy worse (failed), lazy[bias=off] not run"


def test_a_declared_experiment_on_a_task_runs_on_it_with_its_own_expectation(tmp_path: Path) -> None:
    done = cli.run("ablate", "lazy_sink", "--dry-run", "--json", "--seeds", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = cli.payload(done)
    assert found["experiment"].startswith("lazy_sink-") and "backcopy-1" in found["corpus"]
    assert len(found["runs"]) == 8


@pytest.mark.parametrize("name", sorted(experiments()))
def test_a_declared_experiment_says_what_it_expects_and_its_arms_exist(name: str) -> None:
    declared = experiments()[name]
    assert declared.question.endswith("?") and len(declared.expectation) > 40
    found = apart([parse(arm) for arm in declared.arms])
    assert len({arm.label for arm in found}) == len(declared.arms)


def test_page_and_manifest_are_written_by_one_command(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert cli.experiment("compare", "softmax", out=out, extra=("--seeds", "2")).returncode == 0
    done = cli.run("report", "compare", "--html", "--json", "--out", str(out))
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads((out / "manifest.json").read_text()).values()
    assert entry["command"].startswith("python run.py compare softmax") and len(entry["tables"]) == 2
