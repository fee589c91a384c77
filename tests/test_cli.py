from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import cli

VERBS = ("list", "doctor", "compare", "ablate", "tune", "bench", "check", "measure", "report")
COMMON = ("--out", "--json", "--debug")
EXPERIMENT = ("--preset", "--data", "--tokenizer", "--seeds", "--baseline", "--set", "--workers", "--dry-run",
              "--device", "--keep-weights", "--fresh")  # fmt: skip


def test_the_verbs_are_frozen() -> None:
    shown = cli.run("--help").stdout
    assert all(f"• {verb} " in shown for verb in VERBS)
    assert shown.count("•") == len(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_flags_and_an_example(verb: str) -> None:
    done = cli.run(verb, "--help")
    assert done.returncode == 0
    assert f"Example: run.py {verb}" in done.stdout
    for flag in (*COMMON, *(EXPERIMENT if verb in ("compare", "ablate") else ())):
        assert flag in done.stdout


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; sys.argv = ['run.py', 'compare', '--help']; import run\n"
        "try: run.main()\nexcept SystemExit: sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=cli.ROOT, capture_output=True).returncode == 0


def test_list_as_json_has_its_schema() -> None:
    found = cli.payload(cli.run("list", "--json"))
    assert {"variants", "experiments"} <= set(found)
    lazy = next(variant for variant in found["variants"] if variant["name"] == "lazy")
    assert {"name", "source", "switches", "knobs", "backends"} <= set(lazy)
    assert [set(switch) for switch in lazy["switches"]] == [{"name", "default", "removes", "equals"}] * 3
    assert all(set(backend) == {"name", "available", "reason"} for backend in lazy["backends"])
    assert all(set(experiment) == {"name", "question"} for experiment in found["experiments"])
    softmax = next(variant for variant in found["variants"] if variant["name"] == "softmax")
    assert {b["name"]: b["available"] for b in softmax["backends"]}["sdpa"] is True
    assert all(backend["available"] or backend["reason"] for v in found["variants"] for backend in v["backends"])


@pytest.mark.parametrize("verb", ["list", "doctor"])
def test_what_there_is_prints_at_80_columns(verb: str) -> None:
    done = cli.run(verb)
    assert done.returncode == 0 and "softmax" in done.stdout


WRONG = {
    "unknown variant": (["compare", "sofmax"], "did you mean 'softmax'"),
    "unknown experiment": (["ablate", "lazy_prts"], "did you mean 'lazy_parts'"),
    "unknown preset": (["compare", "--preset", "qick"], "did you mean 'quick'"),
    "unknown field": (["compare", "--set", "train.stps=3"], "did you mean 'steps'"),
    "no field": (["compare", "--set", "steps"], "section.field=value"),
    "the same arm twice": (["compare", "lazy", "lazy"], "are the same"),
    "half a step": (["compare", "--set", "train.steps=20.5"], "a whole number"),
    "nan rate": (["compare", "--set", "train.learning_rate=nan"], "allowed is a number above 0"),
    "heads": (["compare", "--set", "model.model_dim=66"], "not divisible by num_heads"),
    "odd head": (["compare", "--set", "model.model_dim=12"], "head_dim=3 is odd"),
    "no seeds": (["compare", "--seeds", "0"], "at least 1"),
    "length": (["compare", "--set", "data.length=500000"], "split"),
    "corpus": (["compare", "--data", "kjb"], "kjv"),
    "report of nothing": (["report", "nothing", "--out", "nowhere-at-all"], "no experiment is recorded in"),
    "weights": (["compare", "--keep-weights", "some"], "all or none"),
    "workers": (["compare", "--workers", "0"], "at least 1"),
    "cuda": (["compare", "--device", "cuda"], "no CUDA"),
    "no switches": (["ablate", "softmax"], "no switches"),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_a_users_mistake_is_one_line_and_exit_2(case: str) -> None:
    words, said = WRONG[case]
    done = cli.run(*words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("words", [["compare", "--seeds", "many"], ["comprae"], ["compare", "--sed", "3"], []])
def test_a_word_the_parser_cannot_take_is_exit_2(words: list[str]) -> None:
    done = cli.run(*words)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in cli.run("compare", "sofmax", "--debug").stderr


def test_a_results_folder_that_is_a_file_is_said_before_training(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("occupied")
    done = cli.experiment("compare", "softmax", out=tmp_path / "out")
    assert done.returncode == 2 and "cannot be used" in done.stderr and "to train" not in done.stderr
    assert (tmp_path / "out").read_text() == "occupied"


def test_a_dry_run_trains_and_writes_nothing(tmp_path: Path) -> None:
    done = cli.experiment("compare", "softmax", "lazy", out=tmp_path / "out", extra=("--dry-run", "--json"))
    assert done.returncode == 0
    assert [run["recorded"] for run in cli.payload(done)["runs"]] == [False] * 10
    assert not (tmp_path / "out" / "runs").exists()
