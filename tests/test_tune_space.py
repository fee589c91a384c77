"""What is searched, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.arms import parse
from harness.config import TrainConfig
from harness.errors import UsageError
from harness.fields import settings
from harness.tune.dims import Dim
from harness.tune.space import Space, check_words, space_of, text_of, words_of
from tests import tiny


def space(arm: str = "lazy", *texts: str, **sets: Any) -> Space:
    words = words_of(texts)
    check_words(words, [parse(arm)])
    return space_of(parse(arm), tiny.run(arm, **sets), words)


def names(found: Space) -> list[str]:
    return [dim.name for dim in found.dims]


def dim(found: Space, name: str) -> Dim:
    return next(dim for dim in found.dims if dim.name == name)


@pytest.mark.parametrize("arm", ["softmax", "lazy", "mamba", "sigmoid", "stick_breaking"])
def test_every_knob_of_recipe_and_variant_is_searched_and_nothing_else(arm: str) -> None:
    recipe = [f"train.{n}" for n, s in settings(TrainConfig).items() if s.role.kind == "knob"]
    mixer = [n for n, s in settings(parse(arm).variant.spec.Config).items() if s.role.kind == "knob"]
    assert names(space(arm)) == recipe + mixer
    assert "train.learning_rate" in recipe


def test_ranges_and_scales_are_those_of_the_dataclass() -> None:
    role = settings(TrainConfig)["learning_rate"].role
    found = dim(space(), "train.learning_rate")
    assert (found.low, found.high, found.log) == (role.low, role.high, True)


def test_trial_0_is_the_run_with_the_defaults() -> None:
    found = space(train__learning_rate=0.004)
    assert found.settle(found.defaults(), seed=1000).id == tiny.run("lazy", seed=1000, train__learning_rate=0.004).id
    assert found.moved() == []


def test_settings_reach_the_run_and_leave_the_rest_alone() -> None:
    found = space()
    run = found.settle({**found.defaults(), "tau_start": -0.5, "train.warmup": 0.2}, seed=7)
    base = tiny.run("lazy[tau_start=-0.5]", seed=7)
    assert run == dataclasses.replace(base, train=dataclasses.replace(base.train, warmup=0.2))


def test_what_an_arm_sets_itself_is_not_searched() -> None:
    assert "tau_start" not in names(space("lazy[tau_start=-0.5]"))
    assert "train.learning_rate" not in names(space("softmax[train.learning_rate=0.001]"))


def test_space_narrows_widens_holds_and_adds() -> None:
    found = space("lazy", "learning_rate=1e-3:1e-1", "train.beta2=0.9", "elastic=on,off", "lazy.tau=learned,fixed")
    rate = dim(found, "train.learning_rate")
    assert (rate.low, rate.high, rate.log) == (1e-3, 1e-1, True)
    assert "train.beta2" not in names(found) and found.pins == {"train.beta2": 0.9}
    assert dim(found, "elastic").options == (True, False)
    assert dim(found, "tau").options == ("learned", "fixed")
    assert found.settle(found.defaults(), seed=0).train.beta2 == 0.9


def test_a_word_for_one_variant_leaves_the_others_alone() -> None:
    words = words_of(["tau_start=-1:0", "mamba.dt_min=1e-3"])
    arms = [parse("softmax"), parse("lazy"), parse("mamba")]
    check_words(words, arms)
    assert "tau_start" not in names(space_of(arms[0], tiny.run("softmax"), words))
    assert dim(space_of(arms[1], tiny.run("lazy"), words), "tau_start").low == -1
    assert space_of(arms[2], tiny.run("mamba"), words).pins == {"dt_min": 1e-3}


def test_a_default_outside_of_the_range_moves_to_its_end_and_is_named() -> None:
    found = space("softmax", "learning_rate=1e-4:1e-3")
    assert found.defaults()["train.learning_rate"] == 1e-3
    assert found.moved() == ["train.learning_rate"]


WRONG = {
    "unknown knob": (["tau_strat=0:1"], "did you mean 'tau_start'"),
    "another variant's": (["mamba.dt_min=1e-3:1e-2"], "no --space field"),
    "empty range": (["learning_rate=1e-2:1e-3"], "an empty range"),
    "a range of one value": (["learning_rate=1e-2:1e-2"], "an empty range"),
    "three ends": (["learning_rate=1:2:3"], "low:high"),
    "no number": (["learning_rate=low:high"], "not a number"),
    "below 0 on a log scale": (["weight_decay=0:1"], "logarithmic"),
    "beyond what is legal": (["warmup=0:2"], "at most 1"),
    "a range of a switch": (["elastic=0:1"], "takes a list"),
    "no such option": (["tau=learned,frozen"], "learned or fixed"),
    "a value twice": (["elastic=on,on"], "twice"),
    "a field twice under two names": (["warmup=0.1", "train.warmup=0:0.2"], "twice"),
    "a field twice": (["warmup=0.1", "warmup=0.2"], "twice"),
    "no value": (["warmup"], "write field=low:high"),
    "a size": (["steps=10:100"], "a size is the same in all trials"),
    "a size of the mixer": (["bias_length=8"], "a size is the same in all trials"),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_a_wrong_word_is_refused_in_one_line(case: str) -> None:
    texts, said = WRONG[case]
    with pytest.raises(UsageError, match=said) as caught:
        space("lazy", *texts)
    assert "\n" not in str(caught.value)


def test_an_edge_is_where_a_wider_range_might_be_better() -> None:
    rate = dim(space(), "train.learning_rate")
    assert rate.at_edge(rate.low) and rate.at_edge(rate.high) and rate.at_edge(rate.high * 0.9)
    assert not rate.at_edge(1e-3)
    warmup = dim(space(), "train.warmup")
    assert not warmup.at_edge(0.0), "no warm-up is below none"
    assert warmup.at_edge(warmup.high)


@given(st.floats(0, 1, exclude_max=True), st.sampled_from(names(space("mamba"))))
def test_a_point_lies_in_its_range_at_four_digits(share: float, name: str) -> None:
    found = dim(space("mamba"), name)
    value = found.at(share)
    assert found.low <= value <= found.high
    assert value in (found.low, found.high) or value == float(f"{value:.4g}")
    assert found.tidy(value) == value
    assert abs(found.share(value) - share) < 2e-3


@given(st.floats(0, 1, exclude_max=True))
def test_options_are_drawn_alike(share: float) -> None:
    assert Dim(name="a", options=("x", "y", "z")).at(share) == "xyz"[int(share * 3)]


def test_an_arm_with_its_settings_is_an_arm_again() -> None:
    arm = parse("lazy[elastic=off]")
    again = parse(text_of(arm, {"train.learning_rate": 0.0042, "tau_start": -0.5}))
    assert again.mixer.elastic is False and again.mixer.tau_start == -0.5
    assert again.sections == {"train": {"learning_rate": "0.0042"}}
