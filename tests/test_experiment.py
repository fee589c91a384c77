from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import arms, experiment, registry
from harness.arms import function_of, parse, switch_arms
from harness.commands import experiments
from harness.errors import UsageError
from harness.experiment import Plan, Request, plan
from harness.presets import PRESETS
from tests.tiny import SOURCE

MIXER = """
from dataclasses import dataclass
from torch import nn
from harness.spec import MixerSpec, switch
from {neighbour} import scale
@dataclass(frozen=True, kw_only=True)
class Config:
    gate: bool = switch(True, off=False, removes="the gate")
class Layer(nn.Module):
    def __init__(self, dims, config, *, layer_index, core):
        super().__init__()
        self.lin = nn.Linear(dims.model_dim, dims.model_dim)
    def forward(self, x, shared):
        return self.lin(x) * scale
SPEC = MixerSpec(name="mine", Config=Config, Layer=Layer)
"""


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "load", lambda corpus, tokenizer, cache: SOURCE)


def planned(*names: str, **more: Any) -> Plan:
    return plan(Request(name="t", arms=names, **more), cuda=False)


def test_seeds_are_the_outer_loop_so_that_drift_hits_all_arms_alike() -> None:
    runs = planned("softmax", "lazy", seeds=2).runs()
    assert [(label, run.train.seed) for label, run in runs] == [
        ("softmax", 0), ("lazy", 0), ("softmax", 1), ("lazy", 1),
    ]  # fmt: skip


def test_flash_beside_softmax_is_one_function_and_one_training() -> None:
    result = planned("softmax", "flash")
    assert [arm.same_as for arm in result.arms] == [None, "softmax"]
    assert len(result.runs()) == 5


def test_lazy_without_both_parts_is_the_same_function_as_softmax() -> None:
    result = planned("softmax", "lazy[bias=off,elastic=off]", "lazy[bias=off]", "lazy[bias=off,elastic=off,rope=off]")
    assert [arm.same_as for arm in result.arms] == [None, "softmax", None, None]


def test_a_field_that_both_variants_have_is_carried_into_the_identity() -> None:
    lazy = parse("lazy[bias=off,elastic=off,kv_heads=1]")
    assert function_of(lazy) == function_of(parse("softmax[kv_heads=1]")) != function_of(parse("softmax"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sofmax", "did you mean 'softmax'"), ("lazy[tau_strt=1]", "did you mean 'tau_start'"),
        ("lazy[tau_start=nan]", "allowed is"), ("lazy[bias]", "field=value"), ("lazy[", "NAME"),
        ("lazy[bias=on,bias=off]", "twice"), ("lazy[train.seed=3]", "same in all arms"),
        ("lazy[data.length=3]", "same in all arms"), ("lazy[modle.num_layers=3]", "did you mean 'model'"),
        ("lazy[backend=sdp]", "did you mean 'sdpa'"), ("lazy[backend=sdpa]", "no threshold"),
        ("softmax[backend=flash_attn]", "not on cpu"), ("softmax[kv_heads=3]", "does not divide"),
        ("nowhere.py", "nowhere.py"), ("", "NAME"),
    ],
)  # fmt: skip
def test_a_wrong_arm_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        planned("softmax", text)


@pytest.mark.parametrize("pair", [("lazy", "lazy"), ("lazy", "lazy[bias=on]"), ("lazy[rope=off]", "lazy[ rope = no ]")])
def test_the_same_arm_twice_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="are the same"):
        planned(*pair)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"seeds": 0}, "at least 1"), ({"preset": "qick"}, "did you mean 'quick'"),
        ({"sets": {"train.stps": "3"}}, "did you mean 'steps'"), ({"sets": {"steps": "3"}}, "section.field=value"),
        ({"sets": {"lazy.tau": "fixed"}}, "go into its arm"), ({"baseline": "lazy"}, "no arm to be the baseline"),
        ({"sets": {"model.num_heads": "64", "model.model_dim": "64"}}, "odd"),
        ({"sets": {"data.length": "2000"}}, "split"),
        ({"sets": {"train.device": "cuda"}}, "no CUDA"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_before_training(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        planned("softmax", **request_)


def test_an_arm_may_set_fields_of_model_and_train() -> None:
    arm = planned("softmax", "softmax[model.num_layers=3,train.learning_rate=0.5]").arms[1]
    assert arm.runs[0].model.num_layers == 3
    assert arm.runs[0].train.learning_rate == 0.5
    assert arm.same_as is None


def test_the_key_of_an_experiment_changes_with_what_it_asks_for() -> None:
    keys = {planned("softmax", "lazy").key, planned("softmax", "lazy", seeds=3).key,
            planned("softmax", "lazy", baseline="lazy").key, planned("lazy", "softmax").key}  # fmt: skip
    assert len(keys) == 4
    assert planned("softmax", "lazy").key in keys


def test_an_ablation_has_full_each_off_each_alone_and_all_off_once_each() -> None:
    labels = switch_arms("lazy")
    assert labels[0] == "lazy" and len(labels) == 8 == len(set(labels))
    assert {"lazy[bias=off]", "lazy[elastic=off,rope=off]", "lazy[bias=off,elastic=off,rope=off]"} <= set(labels)


def test_every_declared_experiment_can_be_planned_and_says_what_it_expects() -> None:
    assert "lazy_parts" in registry.experiments()
    for name in registry.experiments():
        names, declared = experiments.ablation(name)
        assert declared["question"] and declared["expectation"]
        task, preset = declared.pop("task"), declared.pop("preset")
        declared |= {"sets": {"data.corpus": task.corpus(None)}, "preset": task.preset} if task else {}
        declared |= {"preset": preset} if preset else {}
        assert plan(Request(arms=names, **declared), cuda=False).arms


def test_an_unknown_ablation_names_experiments_and_variants() -> None:
    with pytest.raises(UsageError, match="did you mean 'lazy_parts'"):
        experiments.ablation("lazy_part")


def test_compare_without_names_starts_with_softmax_and_its_alias_and_takes_every_variant() -> None:
    names = experiments.default_arms()
    assert names[:2] == ["softmax", "flash"]
    assert set(registry.shipped()) <= set(names)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_can_be_planned(preset: str) -> None:
    sets = {"data.length": "64", "data.tokenizer": "bytes"}
    assert planned("softmax", "lazy", preset=preset, sets=sets).arms


def write_mixer(folder: Path, *, scale: str = "1.0", neighbour: str = "neighbour") -> str:
    folder.mkdir(exist_ok=True)
    (folder / f"{neighbour}.py").write_text(f"scale = {scale}\n")
    (folder / "mine.py").write_text(MIXER.format(neighbour=neighbour))
    return str(folder / "mine.py")


def test_a_users_file_is_an_arm_with_its_neighbours_and_its_switches(tmp_path: Path) -> None:
    file = write_mixer(tmp_path)
    result = planned("softmax", file, f"{file}[gate=off]")
    assert [arm.label for arm in result.arms] == ["softmax", "mine.py", "mine.py[gate=off]"]
    assert switch_arms(file) == [file, f"{file}[gate=off]"]


def test_editing_the_file_or_its_neighbour_makes_new_runs(tmp_path: Path) -> None:
    hashes = {registry.load(Path(write_mixer(tmp_path / "a", neighbour="near_a"))).file_hash}
    hashes.add(registry.load(Path(write_mixer(tmp_path / "b", neighbour="near_b", scale="2.0"))).file_hash)
    (tmp_path / "b" / "mine.py").write_text((tmp_path / "b" / "mine.py").read_text() + "# edited\n")
    hashes.add(registry.load(tmp_path / "b" / "mine.py").file_hash)
    assert len(hashes) == 3


def test_neighbours_of_the_same_name_in_two_folders_do_not_mix(tmp_path: Path) -> None:
    one = registry.load(Path(write_mixer(tmp_path / "one", scale="1.0")))
    two_file = write_mixer(tmp_path / "two", scale="7.0")
    Path(two_file).write_text(Path(two_file).read_text() + "# another\n")
    two = registry.load(Path(two_file))
    assert one.spec.Layer.forward.__globals__["scale"] == 1.0
    assert two.spec.Layer.forward.__globals__["scale"] == 7.0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x = 1\n", "exports no SPEC"), ("SPEC = 3\n", "exports no SPEC"), ("1 / 0\n", r"ZeroDivisionError.*line 1"),
        ("\n\ndef f(:\n", r"SyntaxError.*line 3"), ("raise SystemExit(3)\n", "SystemExit"),
        ("import nowhere_at_all\n", "nowhere_at_all"),
        ("from harness.spec import MixerSpec\nclass C:\n  pass\nSPEC = MixerSpec(name='x', Config=C, Layer=C)\n",
         "must be a dataclass"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_variant_is_refused_with_its_reason(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "bad.py").write_text(content)
    with pytest.raises(UsageError, match=words):
        arms.parse(str(tmp_path / "bad.py"))
