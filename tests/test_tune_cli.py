"""`tune`, and what `compare` and `ablate` do with what it chose, as a user types them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import RecordError, UsageError
from harness.records import Store
from harness.registry import shipped
from harness.tune.effort import Effort
from tests import cli, tuning

Run = Callable[..., tuple[int, str, str]]
QUICK = ("--trials", "3", "--space", "learning_rate=5e-3:3e-2")


@pytest.fixture
def command(capsys: Any, monkeypatch: Any) -> Run:
    return lambda *words, out: tuning.command(*words, out=out, capsys=capsys, monkeypatch=monkeypatch)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three studies of three trials of two arms."""
    out = tmp_path_factory.mktemp("tuned") / "out"
    effort = Effort(trials=3, space={"learning_rate": "5e-3:3e-2"})
    tuning.tune(out, "softmax", "lazy", effort=effort, studies=3)
    return out


def test_json_has_its_schema_and_the_same_command_trains_nothing(results: Path, command: Run) -> None:
    before = {path.name: path.read_bytes() for path in (results / "tables").glob("tune-*")}
    words = ("tune", "softmax", "lazy", "--studies", "3", "--workers", "1", "--json", *QUICK)
    code, stdout, stderr = command(*words, out=results)
    found = json.loads(stdout)
    assert code == 0 and "trial" not in stderr
    assert {path.name: path.read_bytes() for path in (results / "tables").glob("tune-*")} == before
    assert set(found) == {"variants"} and [variant["name"] for variant in found["variants"]] == ["softmax", "lazy"]
    for variant in found["variants"]:
        assert set(variant) == {"name", "trials", "pruned", "failed", "best", "best_value", "at_edge", "curve", "range",
                                "expected", "importances"}  # fmt: skip
        assert (variant["trials"], len(variant["curve"])) == (9, 3)
        assert 0.005 <= variant["best"]["train.learning_rate"] <= 0.03


def test_tables_and_figure_lie_beside_the_records(results: Path) -> None:
    kinds = {path.suffix for path in (results / "tables").glob("tune-*")}
    assert kinds == {".md", ".csv", ".svg", ".png"}
    (markdown,) = (results / "tables").glob("tune-*.md")
    assert "lazy[train.learning_rate=" in markdown.read_text() and ".svg)" in markdown.read_text()
    (table,) = (results / "tables").glob("tune-*.csv")
    assert len(table.read_text().splitlines()) == 1 + 2 * 9
    assert list((results / "runs").glob("*.json")) == [], "a trial is no run of a table"


def test_compare_tuned_plans_best_and_defaults_on_seeds_of_their_own(results: Path, command: Run) -> None:
    words = ("compare", "softmax", "lazy", "--tuned", "--studies", "3", "--seeds", "6", "--dry-run", "--json")
    code, stdout, _ = command(*words, out=results)
    runs = json.loads(stdout)["runs"]
    assert code == 0 and len({run["id"] for run in runs}) == len(runs) <= 24
    kinds = {f"{arm} {kind}" for arm in ("softmax", "lazy") for kind in ("tuned", "defaults")}
    assert {run["arm"] for run in runs} <= kinds
    assert {run["seed"] for run in runs} == set(range(6))


def test_compare_tuned_reports_both_and_gives_no_verdict_for_one_study(results: Path, command: Run) -> None:
    code, stdout, _ = command("compare", "softmax", "lazy", "--tuned", "--seeds", "2", "--workers", "1", out=results)
    assert code == 0
    assert "tuned: 3 trials an arm (tpe, median pruning), 4 to 5 fields searched" in stdout
    assert "softmax tuned" in stdout and "lazy defaults" in stdout
    assert "intervals are conditional on the" in " ".join(stdout.split())
    assert not {"better", "worse"} & {line.split()[-1] for line in stdout.splitlines() if line.startswith("lazy")}
    recorded = Store(results).all_runs()
    assert all(record.config["train"]["seed"] < 1000 for record in recorded)


def test_a_table_of_several_studies_names_one_unit_of_observation(results: Path, command: Run) -> None:
    words = ("compare", "softmax", "lazy", "--tuned", "--studies", "3", "--seeds", "3", "--workers", "1")
    code, stdout, _ = command(*words, out=results)
    text = " ".join(stdout.split())
    assert code == 0 and "whose mean is one observation" in text
    assert "paired by study" in text and "paired by seed" not in text


def test_a_dry_run_shows_the_space_and_writes_nothing(tmp_path: Path, command: Run) -> None:
    code, stdout, _ = command("tune", "lazy", "--dry-run", "--space", "elastic=on,off", out=tmp_path / "out")
    assert code == 0 and "-1.5 to 0.5" in stdout and "on | off" in stdout
    assert not (tmp_path / "out").exists()


def test_every_shipped_variant_is_tuned_unless_named(tmp_path: Path, command: Run) -> None:
    code, stdout, _ = command("tune", "--dry-run", "--json", out=tmp_path / "out")
    assert code == 0
    assert {variant["name"] for variant in json.loads(stdout)["variants"]} == set(shipped())


def test_without_names_tune_and_compare_match_sizes_to_the_same_arm(tmp_path: Path, command: Run) -> None:
    words = ("--match", "parameters", "--set", "model.mlp_dim=96")
    assert command("tune", *words, "--trials", "1", out=tmp_path / "out")[0] == 0
    code, stdout, stderr = command("compare", "--tuned", *words, "--dry-run", "--json", out=tmp_path / "out")
    assert code == 0, stderr
    assert {run["arm"] for run in json.loads(stdout)["runs"]} >= {f"{name} tuned" for name in shipped()}


def test_a_study_of_another_size_says_which_field_differs_and_how_to_make_it(tmp_path: Path, command: Run) -> None:
    words, out = ("--match", "parameters", "--set", "model.mlp_dim=96"), tmp_path / "out"
    assert command("tune", "lazy", "softmax", *words, "--trials", "1", out=out)[0] == 0
    code, _, stderr = command("compare", "softmax", "lazy", *words, "--tuned", out=out)
    assert code == 2 and "model.mlp_dim" in stderr and "run.py tune softmax lazy --match parameters" in stderr


WRONG = {
    "unknown knob": (["tune", "lazy", "--space", "tau_strat=0:1"], "did you mean 'tau_start'"),
    "empty range": (["tune", "lazy", "--space", "tau_start=1:0"], "an empty range"),
    "no trials": (["tune", "lazy", "--trials", "0"], "at least 1 trial"),
    "sampler": (["tune", "lazy", "--sampler", "grid"], "tpe or random or qmc"),
    "pruning": (["tune", "lazy", "--pruning", "hyperband"], "median or none"),
    "studies": (["tune", "lazy", "--studies", "0"], "at least 1"),
    "retries": (["tune", "lazy", "--retries", "-1"], "0 or more"),
    "workers": (["tune", "lazy", "--workers", "0"], "at least 1"),
    "storage": (["tune", "lazy", "--storage", "redis"], "journal or sqlite"),
    "sqlite": (["tune", "lazy", "--storage", "sqlite", "--workers", "2"], "SQLite cannot lock a row"),
    "nothing to search": (["tune", "softmax", "--space", "learning_rate=0.1", "--space", "warmup=0.1", "--space",
                           "weight_decay=0.1", "--space", "beta2=0.95"], "nothing is left to search"),
    "no study": (["compare", "softmax", "lazy", "--tuned"], "first: run.py tune softmax lazy"),
    "no study of an arm": (["ablate", "lazy", "--tuned"], "first: run.py tune lazy 'lazy[bias=off]'"),
    "studies alone": (["compare", "softmax", "--studies", "3"], "belongs to --tuned"),
    "both": (["ablate", "lazy", "--tuned", "--retune", "learning_rate"], "without --tuned"),
    "no such knob": (["ablate", "lazy", "--retune", "warmup"], "learning_rate"),
    "experiment and arm": (["tune", "lazy_parts", "softmax"], "tune it alone"),
    "tuned twin": (["compare", "softmax", "--tuned", "--noise-floor", "2"], "leave --tuned out"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(WRONG))
def test_a_mistake_is_one_line_and_exit_2(case: str, tmp_path: Path, command: Run) -> None:
    words, said = WRONG[case]
    code, stdout, stderr = command(*words, out=tmp_path / "out")
    assert code == 2, stderr
    assert said in stderr and stdout == "" and len(stderr.strip().splitlines()) == 1


def test_a_journal_of_other_data_is_refused_and_kept(results: Path, command: Run) -> None:
    text = cli.text(results.parent)
    content = text.read_text()
    (journal,) = (results / "studies").iterdir()
    before = journal.read_bytes()
    try:
        text.write_text(content + "Another line.\n" * 50)
        code, _, stderr = command("tune", "softmax", "--workers", "1", *QUICK, out=results)
        assert code == 2 and "other data (SHA-256" in stderr and "--fresh puts the file aside" in stderr
        code, _, stderr = command("compare", "softmax", "--tuned", out=results)
        assert code == 2 and "other data (SHA-256" in stderr
    finally:
        text.write_text(content)
    assert journal.read_bytes() == before


def test_studies_of_other_settings_are_told_apart_by_field(results: Path, command: Run) -> None:
    words = ("compare", "softmax", "lazy", "--tuned", "--dry-run", "--set", "train.batch_size=4")
    code, _, stderr = command(*words, out=results)
    assert code == 2 and "train.batch_size 2 there, 4 here" in stderr and len(stderr.strip().splitlines()) == 1
    code, _, stderr = command("compare", "softmax", "--tuned", "--budget", "flops", "--dry-run", out=results)
    assert code == 2 and "another --match or --budget" in stderr


def _no_lock(self: Store, name: str) -> None:
    raise RecordError(f"{name}.lock was not written: Permission denied")


def test_a_folder_that_cannot_be_written_is_said_to_be_so(
    results: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Store) -> None:
        raise UsageError(f"results folder {self.root} cannot be used (Permission denied)")

    monkeypatch.setattr(Store, "check_writable", refuse)
    monkeypatch.setattr(Store, "hold", _no_lock)
    code, _, stderr = command("compare", "softmax", "lazy", "--tuned", out=results)
    assert code == 2 and stderr.startswith("error: results folder") and "journal" not in stderr


def test_seeds_fewer_than_studies_are_refused(results: Path, command: Run) -> None:
    code, _, stderr = command("compare", "softmax", "lazy", "--tuned", "--studies", "3", "--seeds", "2", out=results)
    assert code == 2 and "needs a seed for each" in stderr


def test_unequal_effort_is_refused(results: Path, tmp_path: Path, command: Run) -> None:
    out = tmp_path / "out"
    shutil.copytree(results, out)
    words = ("--data", str(cli.text(results.parent)))
    code, _, stderr = command("tune", "softmax", *QUICK, "--trials", "2", *words, out=out)
    assert code == 2 and "has had 3; --trials 3 gives it whole" in stderr
    code, stdout, stderr = command("tune", "softmax", "--json", *QUICK, "--trials", "4", *words, out=out)
    assert code == 0 and json.loads(stdout)["variants"][0]["trials"] == 4
    code, _, stderr = command("compare", "softmax", "lazy", "--tuned", *words, out=out)
    assert code == 2 and "unequal effort: softmax 4, lazy 3 trials" in stderr


def test_where_all_trials_fail_it_is_said_and_kept(tmp_path: Path, command: Run) -> None:
    words = ("--trials", "2", "--workers", "1", "--sampler", "random", "--space", "learning_rate=900:1000", "--set",
             "train.learning_rate=1000")  # fmt: skip
    code, stdout, stderr = command("tune", "softmax", *words, out=tmp_path / "out")
    assert code == 2 and stderr.strip().splitlines()[-1].startswith("error: all 2 trials of softmax failed: diverged")
    assert "2 of 2 trials failed" in stdout
    words = ("compare", "softmax", "--tuned", "--set", "train.learning_rate=1000")
    code, _, stderr = command(*words, out=tmp_path / "out")
    assert code == 2 and "all trials of softmax failed" in stderr


def test_a_results_folder_that_is_a_file_is_said_before_the_first_trial(tmp_path: Path, command: Run) -> None:
    (tmp_path / "out").write_text("occupied")
    code, _, stderr = command("tune", "softmax", out=tmp_path / "out")
    assert code == 2 and "cannot be used" in stderr and (tmp_path / "out").read_text() == "occupied"
