from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import SECTIONS, DataConfig, ModelConfig, RunConfig, TrainConfig
from harness.errors import UsageError
from harness.fields import build, identity, resolved, restore, settings, shown
from harness.registry import shipped
from harness.spec import choice, knob, size, switch

CONFIGS = [*SECTIONS.values(), *(variant.spec.Config for variant in shipped().values())]


@dataclass(frozen=True, kw_only=True)
class Example:
    rate: float = knob(0.1, low=0.01, high=1.0, log=True, above=0)
    kind: str = choice("one", "two")
    deep: bool = switch(True, off=False, removes="depth")
    window: int | None = size(None, least=1)
    late: int = size(3, absent=2)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__qualname__ + config.__module__)
def test_every_config_survives_the_round_trip_through_text(config: type) -> None:
    built = build(config, {}, where="x")
    assert build(config, resolved(built), where="x") == built
    assert build(config, {name: shown(value) for name, value in resolved(built).items()}, where="x") == built
    assert restore(config, json.loads(json.dumps(identity(built))), where="x") == built


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rate", "nan"), ("rate", "inf"), ("rate", math.nan), ("rate", "0"), ("rate", -1), ("rate", "fast"),
        ("rate", None), ("rate", True), ("kind", "three"), ("deep", "maybe"), ("deep", 1), ("window", "0"),
        ("window", "2.5"), ("window", 2.0), ("window", "1e3"), ("late", None), ("late", []), ("late", "nan"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_or_range_says_what_is_allowed(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"x\.{field}=.*allowed is"):
        build(Example, {field: value}, where="x")


def test_an_unknown_field_names_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'window'"):
        build(Example, {"windw": 3}, where="x")


@pytest.mark.parametrize(("text", "value"), [("on", True), ("off", False), ("true", True), ("No", False)])
def test_switches_are_words(text: str, value: bool) -> None:
    assert build(Example, {"deep": text}, where="x").deep is value


def test_a_field_added_later_leaves_old_ids_alone() -> None:
    assert "late" not in identity(build(Example, {"late": 2}, where="x"))
    assert identity(Example())["late"] == 3
    assert restore(Example, {}, where="x").late == 2


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (TrainConfig, {"steps": "20.5"}), (TrainConfig, {"learning_rate": "nan"}), (TrainConfig, {"steps": 0}),
        (ModelConfig, {"model_dim": 65}), (TrainConfig, {"accumulate": 3}), (DataConfig, {"length": 1}),
        (TrainConfig, {"seed": -1}), (TrainConfig, {"dtype": "float16"}), (TrainConfig, {"beta2": 1.0}),
    ],
)  # fmt: skip
def test_what_no_run_can_have_is_refused(section: type, values: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        build(section, values, where="s")


def test_a_config_needs_defaults_and_types_that_text_can_give() -> None:
    @dataclass(frozen=True)
    class Bare:
        x: int

    @dataclass(frozen=True)
    class Odd:
        x: tuple[int, ...] = ()

    for config in (Bare, Odd, int):
        with pytest.raises(UsageError):
            settings(config)


RUNS = st.builds(
    RunConfig,
    variant=st.sampled_from(sorted(shipped())),
    mixer=st.dictionaries(st.text(max_size=5), st.one_of(st.booleans(), st.integers(), st.floats(0, 1))),
    model=st.builds(ModelConfig, num_layers=st.integers(1, 9), init_std=st.one_of(st.none(), st.floats(0.01, 1))),
    train=st.builds(TrainConfig, seed=st.integers(0, 2**31), learning_rate=st.floats(1e-6, 1)),
    data=st.builds(DataConfig, length=st.integers(2, 9999)),
    fingerprint=st.text("0123456789abcdef", max_size=64),
    file_hash=st.one_of(st.none(), st.text("0123456789abcdef", min_size=1, max_size=64)),
)


@given(RUNS)
def test_a_run_survives_the_round_trip_through_json_with_its_id(run: RunConfig) -> None:
    again = RunConfig.from_dict(json.loads(json.dumps(run.to_dict())))
    assert again == run
    assert again.id == run.id


@given(RUNS, RUNS)
def test_runs_that_differ_have_different_ids(one: RunConfig, other: RunConfig) -> None:
    if one.id == other.id:
        same = dataclasses.replace(other, variant=one.variant, data=dataclasses.replace(other.data, corpus="kjv"))
        assert dataclasses.replace(one, data=dataclasses.replace(one.data, corpus="kjv")) == same


def test_ids_are_pinned() -> None:
    # Changing this number orphans every record there is: give a new field `absent=` instead.
    assert RunConfig(variant="softmax").id == "a42b970af25497ff"


def test_a_user_file_is_known_by_its_content_not_by_its_place() -> None:
    here, there = RunConfig(variant="/a/m.py", file_hash="1"), RunConfig(variant="/b/m.py", file_hash="1")
    assert here.id == there.id != RunConfig(variant="/a/m.py", file_hash="2").id


@pytest.mark.parametrize(
    "values", [{}, {"variant": 3}, {"variant": "lazy", "modle": {}}, {"variant": "l", "model": {"x": 1}}]
)
def test_a_foreign_run_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        RunConfig.from_dict(values)
