"""Whose trial is whose: nothing is lost, nothing counts twice, whoever dies."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from harness.arms import parse
from harness.errors import RecordError, UsageError
from harness.records import Store
from harness.tune.effort import Effort
from harness.tune.journal import _cut, journal_path, open_storage
from harness.tune.ledger import Attempt, Ledger
from harness.tune.process import described, gone
from harness.tune.space import space_of
from harness.tune.studies import Terms, open_ledgers
from tests import tiny

HERE = {**described(os.getpid()), "parent": described(os.getpid())}
DEAD = {**HERE, "parent": {**HERE["parent"], "start": "before"}}
ELSEWHERE = {**HERE, "parent": {**HERE["parent"], "host": "another"}}
SETTINGS = {"of": "a test"}


def ledgers(folder: Path, *, trials: int = 5, sampler: str = "random", **terms: Any) -> list[Ledger]:
    arm = "softmax"
    effort = Effort(trials=trials, sampler=sampler, pruning=terms.pop("pruning", "none"))
    fields = {name: terms.pop(name) for name in list(terms) if "__" in name}
    spaces = {arm: space_of(parse(arm), tiny.run(arm, **fields), {})}
    return open_ledgers(spaces, SETTINGS, effort, Terms(**terms), Store(folder))[1]


def take(ledger: Ledger, process: Any = HERE) -> Attempt:
    found = ledger.take(process)
    assert found is not None
    return found


def end(ledger: Ledger, attempt: Attempt, loss: float = 1.0) -> None:
    ledger.close(attempt, "ok", None, {2: loss + 1, 6: loss})


def test_a_study_is_as_many_trials_as_were_asked_for(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path)
    for slot in range(5):
        attempt = take(ledger)
        assert attempt.slot == slot and attempt.run.train.seed == 1000
        end(ledger, attempt, 2.0 - slot / 10)
    assert ledger.take(HERE) is None
    found = ledger.result()
    assert [trial.slot for trial in found.trials] == [0, 1, 2, 3, 4]
    assert found.best is not None and (found.best.slot, found.best.value) == (4, 1.6)


def test_more_trials_go_on_from_those_there_are(tmp_path: Path) -> None:
    (few,) = ledgers(tmp_path / "a", trials=3, sampler="tpe")
    for slot in range(3):
        end(few, take(few), 2.0 - slot)
    (more,) = ledgers(tmp_path / "a", trials=7, sampler="tpe")
    (whole,) = ledgers(tmp_path / "b", trials=7, sampler="tpe")
    for slot in range(7):
        if slot > 2:
            end(more, take(more), 2.0 - slot)
        end(whole, take(whole), 2.0 - slot)
    assert [trial.settings for trial in more.result().trials] == [trial.settings for trial in whole.result().trials]


@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe"])
def test_a_trial_whose_process_died_is_failed_and_made_again_at_the_same_point(tmp_path: Path, sampler: str) -> None:
    (ledger,) = ledgers(tmp_path, sampler=sampler, trials=6)
    for _ in range(4):
        end(ledger, take(ledger))
    lost = take(ledger, DEAD)
    again = take(ledger)
    assert (again.slot, again.run.id, again.died) == (lost.slot, lost.run.id, 1)
    states = {trial.number: trial.state for trial in ledger.study.get_trials()}
    assert states[lost.trial.number] is TrialState.FAIL and again.trial.user_attrs["history"] == [lost.trial.number]
    assert again.trial.user_attrs["process"]["pid"] == os.getpid()


def test_after_so_many_deaths_a_trial_is_a_failure_with_its_history(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path, trials=1, retries=2)
    numbers = [take(ledger, DEAD).trial.number for _ in range(3)]
    assert numbers == [0, 1, 2] and ledger.take(HERE) is None
    (trial,) = ledger.result().trials
    assert (trial.state, trial.status, trial.attempts) == ("failed", "crashed", 3)
    (more,) = ledgers(tmp_path, trials=1, retries=3)
    assert take(more).slot == 0, "a larger --retries goes on"


def test_an_interruption_is_no_death(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path, trials=1, retries=0)
    for _ in range(3):
        ledger.close(take(ledger), "interrupted", "stopped", {})
    end(ledger, take(ledger))
    (trial,) = ledger.result().trials
    assert (trial.state, trial.attempts) == ("done", 4)


def test_a_death_between_outcome_and_telling_counts_once(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path, trials=2)
    attempt = take(ledger, DEAD)
    attempt.trial.set_user_attr("outcome", {"status": "ok", "error": None})
    assert ledger.result().trials == ()
    again = take(ledger)
    assert again.slot == 0
    end(ledger, again)
    end(ledger, take(ledger))
    assert [trial.state for trial in ledger.result().trials] == ["done", "done"]


def test_a_trial_asked_for_by_nobody_who_lives_is_no_trial(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path, trials=2, sampler="tpe")
    ledger.study.ask()
    for _ in range(2):
        end(ledger, take(ledger))
    assert ledger.take(HERE) is None
    assert [trial.slot for trial in ledger.result().trials] == [0, 1]


def test_a_trial_on_another_host_is_left_to_it(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path, trials=1)
    take(ledger, ELSEWHERE)
    assert ledger.take(HERE) is None
    assert (ledger.other_hosts(), ledger.waits()) == (1, False)


def test_settings_the_config_refuses_are_a_failed_trial(tmp_path: Path) -> None:
    arm = "lazy[divide_by_n=off,tau_start=-0.5]"
    effort = Effort(trials=2, sampler="random", pruning="none", space={"warmup": "0.1"})
    space = space_of(parse(arm), tiny.run(arm), {})
    (ledger,) = open_ledgers({arm: space}, SETTINGS, effort, Terms(), Store(tmp_path))[1]
    ledger.space.pins["tau_start"] = -1.2  # type: ignore[index]
    assert ledger.take(HERE) is None
    assert {trial.status for trial in ledger.result().trials} == {"refused"}
    assert "cuts every weight" in str(ledger.result().trials[0].error)


def test_pruning_starts_after_three_trials_and_a_fifth_of_the_steps_and_spares_the_last_step(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path, pruning="median", trials=6, train__steps=10)
    for loss in (1.0, 2.0, 3.0):
        attempt = take(ledger)
        assert not any(ledger.report(attempt, step, loss + 9) for step in (1, 2, 5, 10))
        ledger.close(attempt, "ok", None, {10: loss})
    bad = take(ledger)
    assert [ledger.report(bad, step, 20.0) for step in (1, 2)] == [False, True]
    ledger.close(bad, "stopped", None, {2: 20.0}, steps=2)
    last = take(ledger)
    assert not ledger.report(last, 10, 20.0)
    assert not ledger.report(take(ledger), 2, 10.5)
    found = ledger.result()
    assert [trial.state for trial in found.trials] == ["done", "done", "done", "pruned"]
    assert found.saved == 8 / 40


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_killed_there_are_n_trials_in_the_end(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    trials, going = 5, []
    ends: list[Any] = [("ok", None, {6: 1.0}), ("diverged", "nan", {}), ("died", "x", {}), ("interrupted", "x", {})]
    while True:
        # A new ledger each time, as a command that was killed and started again has.
        (ledger,) = ledgers(tmp_path, trials=trials, retries=100)
        for _ in range(chance.randrange(1, 6)):
            attempt = ledger.take(chance.choice([HERE, DEAD]))
            if attempt is not None and attempt.trial.user_attrs["process"] == HERE:
                going.append(attempt)
            if going and chance.random() < 0.6:
                ended = going.pop(chance.randrange(len(going)))
                ledger.close(ended, *chance.choice(ends))
        if len(ledger.result().trials) == trials:
            break
    assert not going and ledger.take(HERE) is None
    told = {trial.number: trial.user_attrs.get("outcome", {}) for trial in ledger.study.get_trials()}
    ended = [trial for trial in ledger.study.get_trials() if told[trial.number].get("status") in ("ok", "diverged")]
    assert Counter(trial.user_attrs["slot"] for trial in ended) == Counter(range(trials))
    points = {slot: {str(t.params) for t in ended if t.user_attrs["slot"] == slot} for slot in range(trials)}
    assert all(len(found) == 1 for found in points.values())


def test_this_process_lives_and_one_of_another_time_does_not() -> None:
    assert not gone(HERE["parent"]) and gone(DEAD["parent"]) and gone(None)
    assert not gone(ELSEWHERE["parent"]) and not gone({**ELSEWHERE["parent"], "start": "before"})


@pytest.mark.parametrize("tail", [b'{"op_code":4,"torn', b"x" * 9000])
def test_a_torn_last_line_is_cut_back_and_the_study_goes_on(tmp_path: Path, tail: bytes) -> None:
    (ledger,) = ledgers(tmp_path, trials=3)
    end(ledger, take(ledger))
    path = next((tmp_path / "studies").iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    end(ledger, take(ledger))
    path.write_bytes(path.read_bytes() + tail)
    (again,) = ledgers(tmp_path, trials=3)
    end(again, take(again))
    assert path.read_bytes().startswith(whole) and tail not in path.read_bytes()
    assert len(ledgers(tmp_path, trials=3)[0].result().trials) == 3


@pytest.mark.parametrize("torn", [b'{"op', b'{"op_code":0,"worker_id":"x'])
def test_a_journal_of_one_torn_line_is_an_empty_one(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(torn)
    _cut(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("content", [b"half a line", b"\x80\x00\n" * 99, b"{}\n{"])
def test_a_file_that_is_no_journal_is_named_and_kept(tmp_path: Path, content: bytes) -> None:
    ledgers(tmp_path)
    path = next((tmp_path / "studies").iterdir())
    path.write_bytes(content)
    with pytest.raises(RecordError, match="no readable journal"):
        ledgers(tmp_path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("line", [b"hello\n", b"\n", b"17\n", b'{"op_code":\n'])
def test_a_whole_last_line_that_is_no_entry_is_refused_before_another_is_written(tmp_path: Path, line: bytes) -> None:
    (ledger,) = ledgers(tmp_path, trials=2)
    end(ledger, take(ledger))
    path = next((tmp_path / "studies").iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole + line)
    with pytest.raises(RecordError, match="no readable journal"):
        ledgers(tmp_path, trials=3)
    assert path.read_bytes() == whole + line
    path.write_bytes(whole)
    assert len(ledgers(tmp_path, trials=3)[0].result().trials) == 1


def test_fewer_trials_than_a_study_has_had_are_refused_and_more_go_on(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path, trials=3)
    end(ledger, take(ledger))
    end(ledger, take(ledger))
    assert len(ledgers(tmp_path, trials=2)[0].result().trials) == 2, "no trial of the third was begun"
    with pytest.raises(UsageError, match=r"--trials 1: .* has had 2; --trials 2 gives it whole"):
        ledgers(tmp_path, trials=1)
    assert ledgers(tmp_path, trials=4)[0].slots == 4


def test_points_that_a_user_queues_himself_take_slots_of_their_own(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path, trials=1)
    point = take(ledger).trial.params
    for _ in range(3):
        ledger.study.enqueue_trial(dict(point))
    ledger.study.enqueue_trial(dict(point), user_attrs={"slot": 1, "point": dict(point)})
    found = [take(ledger).slot for _ in range(4)]
    assert len(set(found)) == 4


def test_a_broken_journal_is_named_and_kept(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path)
    end(ledger, take(ledger))
    path = next((tmp_path / "studies").iterdir())
    broken = path.read_bytes().replace(b"}\n", b"\n", 2)
    path.write_bytes(broken)
    with pytest.raises(RecordError, match="no readable journal"):
        ledgers(tmp_path)
    assert path.read_bytes() == broken


def test_a_study_of_other_data_code_or_layout_is_refused_with_what_differs(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path)
    made = ledger.study.user_attrs["made"]
    for change, said in (
        ({"run": {**made["run"], "fingerprint": "f" * 64}}, "other data"),
        ({"code": "c" * 64}, "other code"),
        ({"schema": 0}, "its layout is version 0"),
        ({"run": {**made["run"], "model": {**made["run"]["model"], "mlp_dim": 9}}}, "model.mlp_dim 9 there"),
        ({"optuna": "4.2.0"}, "Optuna 4.2.0 there"),
    ):
        ledger.study.set_user_attr("made", {**made, **change})
        with pytest.raises(UsageError, match=said):
            ledgers(tmp_path)
    ledgers(tmp_path, fresh=True)
    assert [path.suffix for path in sorted((tmp_path / "studies").iterdir())] == [".journal", ".old-1"]


def test_the_journal_opens_for_anybody_who_knows_optuna(tmp_path: Path) -> None:
    (ledger,) = ledgers(tmp_path, trials=1)
    end(ledger, take(ledger))
    import optuna

    path = journal_path(Store(tmp_path), SETTINGS, ledger.effort, "journal")
    plain = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    study = optuna.load_study(study_name="softmax", storage=plain)
    assert study.best_value == 1.0 and study.best_trial.intermediate_values == {2: 2.0, 6: 1.0}
    assert open_storage(path, Store(tmp_path)) is not None
