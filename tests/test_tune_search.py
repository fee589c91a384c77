"""A search with real workers: killed, interrupted, resumed, and the same trials in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from harness.commands.tune import TuneInterrupted
from harness.events import Event
from harness.records import Store
from harness.tune.effort import Effort
from harness.tune.journal import open_storage
from tests import cli, tuning

SPACE = {"learning_rate": "5e-3:3e-2"}
RANDOM = Effort(trials=5, sampler="random", pruning="none", space=SPACE)
TPE = Effort(trials=6, space=SPACE)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A search at random that nobody disturbed, by one worker."""
    return tuning.tune(tmp_path_factory.mktemp("quiet") / "out", "softmax", effort=RANDOM)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A search by TPE with pruning that nobody disturbed, of two arms by one worker."""
    return tuning.tune(tmp_path_factory.mktemp("whole") / "out", "softmax", "lazy", effort=TPE)


def entries(out: Path) -> list[dict[str, Any]]:
    """Lines of the journal."""
    (path,) = Store(out).studies.iterdir()
    return [json.loads(line) for line in path.read_text().splitlines()]


def killer(out: Path, victims: set[tuple[str, int]]) -> Callable[[Event], None]:
    """Kills the worker under the first attempt at each of these trials, with the signal nobody can catch."""

    def told(event: Event) -> None:
        if event.kind == "step" and (event.label, event.seed) in victims:
            victims.discard((event.label, event.seed))
            (path,) = Store(out).studies.iterdir()
            study = optuna.load_study(study_name=event.label, storage=open_storage(path, Store(out)))
            running = study.get_trials(states=(optuna.trial.TrialState.RUNNING,))
            (trial,) = (trial for trial in running if trial.user_attrs["slot"] == event.seed)
            os.kill(trial.user_attrs["process"]["pid"], signal.SIGKILL)

    return told


@pytest.mark.parametrize(("workers", "victims"), [(2, {1}), (4, {2})])
def test_killed_workers_lose_no_trial_and_count_none_twice(
    quiet: Any, tmp_path: Path, workers: int, victims: set[int]
) -> None:
    out = tmp_path / "out"
    kill = killer(out, {("softmax", slot) for slot in victims})
    found = tuning.tune(out, "softmax", effort=RANDOM, workers=workers, notify=kill)
    assert found.complete and tuning.trials(found) == tuning.trials(quiet)
    (study,) = found.variants[0].studies
    assert {trial.slot for trial in study.trials if trial.attempts == 2} == victims
    ends = Counter(entry["state"] for entry in entries(out) if entry["op_code"] == 6 and entry["state"] in (1, 3))
    assert ends == {1: 5, 3: len(victims)}


def test_one_worker_gives_the_same_trials_again_through_kills_and_interruptions(whole: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kill = killer(out, {("softmax", 4), ("lazy", 5)})

    def told(event: Event) -> None:
        kill(event)
        if event.kind == "ended" and event.seed == 2:
            raise KeyboardInterrupt

    with pytest.raises(TuneInterrupted) as stopped:
        tuning.tune(out, "softmax", "lazy", effort=TPE, notify=told)
    assert 0 < sum(variant.trials for variant in stopped.value.result.variants) < 12
    again = tuning.tune(out, "softmax", "lazy", effort=TPE, notify=kill)
    assert again.complete and tuning.trials(again) == tuning.trials(whole)
    assert sum(trial.attempts - 1 for variant in again.variants for trial in variant.studies[0].trials) >= 2


def test_the_report_split_is_left_alone_and_trial_0_is_the_defaults(whole: Any) -> None:
    for variant in whole.variants:
        first = variant.studies[0].trials[0]
        assert (first.slot, first.settings["train.learning_rate"], first.steps) == (0, 0.01, 10)
        assert sorted(first.curve) == [2, 4, 6, 8, 10] and first.value == first.curve[10]
    assert {trial.state for variant in whole.variants for trial in variant.studies[0].trials} <= {"done", "pruned"}


def test_a_command_killed_whole_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sizes = [part for name, value in tuning.SETS.items() for part in ("--set", f"{name}={value}")]
    effort = ("--trials", "5", "--sampler", "random", "--pruning", "none", "--workers", "1", "--json",
              "--space", "learning_rate=5e-3:3e-2")  # fmt: skip
    command = [*cli.arguments("tune", "softmax", out=out), *sizes, *effort]
    process = subprocess.Popen(command, cwd=cli.ROOT, env=cli.ENVIRONMENT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    for line in process.stderr or []:
        if b"[2/5]" in line:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = subprocess.run(command, cwd=cli.ROOT, env=cli.ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "[5/5]" in done.stderr and "[1/5]" not in done.stderr
    (variant,) = json.loads(done.stdout)["variants"]
    assert (variant["trials"], variant["failed"], len(variant["curve"])) == (5, 0, 5)
