"""Planted faults: the contract finds each of them, under its own name and at its own place."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.contract import CLAIMS, examine
from harness.spec import MixerSpec
from tests.planted import SOUND, Config, Layer
from tests.planted_cores import HEADS, MINIMAL, SPECS

DOC = "Attention.\n\n    o_i = sum_j p_ij v_j\n\nSource: a test.\n"
GRADIENTS = {"gradients", "strided gradients"}
VALUES = {"values", *GRADIENTS}

# What is planted, every claim it breaks, the claim that names it, and what that one must say.
CASES = [
    ("peeks at the next token", {"causal", "step"}, "causal", "length 7, y at position 0 depends on x at position 1: "),
    (
        "peeks only beyond 64 tokens",
        {"causal", "step"},
        "causal",
        "length 130, y at position 64 depends on x at position 65: ",
    ),
    ("masks its chunks of 48 one too far", {"causal", "step"}, "causal", "length 63, y at position 47 depends on x at"),
    (
        "peeks at one position without gradient",
        {"causal", "step", "slope"},
        "causal",
        "length 130, with x changed from position 102 on, y at position 101",
    ),
    (
        "peeks only beyond 256 tokens",
        {"causal"},
        "causal",
        "length 259, y at position 256 depends on x at position 257",
    ),
    (
        "peeks while it trains",
        {"causal"},
        "causal",
        "at length 130 in training mode, with x changed from position 1 on, y at position 0",
    ),
    (
        "takes a statistic of the future without gradient",
        {"causal", "step", "slope"},
        "causal",
        "with x changed from position 1 on, y at position 0",
    ),
    (
        "leaks through what a layer hands the next",
        {"causal", "step"},
        "causal",
        "position 0 depends on x at position 1",
    ),
    ("peeks in its second layer alone", {"causal", "step"}, "causal", "position 0 depends on x at position 1"),
    ("ignores its input", {"causal", "step", "trained"}, "causal", "depends on no position up to 8, like 55 of the 55"),
    ("takes the mean of the batch", {"batch", "step"}, "batch", "y with the other row changed at position 0"),
    (
        "mixes the rows of more than two",
        {"batch"},
        "batch",
        "in a batch of 5, y with the other rows changed at position 0, row 2",
    ),
    (
        "normalises over the batch while it trains",
        {"batch"},
        "batch",
        "in a batch of 33, y with the other rows changed in training mode at position 0",
    ),
    (
        "raises while it trains",
        {"shape"},
        "shape",
        "at length 130 in training mode forward raises RuntimeError: no kernel",
    ),
    ("drops out in eval mode", {"deterministic"}, "deterministic", "at length 7, the output changes by up to"),
    ("cuts its table from the longest it made", {"deterministic"}, "deterministic", "at length 7, the output changes"),
    ("returns one position for all", {"shape"}, "shape", "at length 7: [2, 1, 32] came out for [2, 7, 32]"),
    ("raises at length 7", {"shape"}, "shape", "at length 7 forward raises RuntimeError: seven is not supported"),
    ("divides by zero in the first row", {"shape"}, "shape", "at length 1 the output has entries that are not finite"),
    ("always returns float64", {"dtype"}, "dtype", "float64 came out for float32"),
    ("keeps a table on the CPU", {"dtype"}, "dtype", "default device, not on the input's"),
    ("views its input's memory", {"strides"}, "strides", "view size is not compatible"),
    (
        "writes into its input",
        {"untouched"},
        "untouched",
        "the input after the pass at position 129, row 0, channel 0 is 0, ",
    ),
    ("has a parameter that is never trained", {"trained", "slope"}, "trained", "0.gain [] never gets a gradient"),
    ("forgets its window in step", {"step"}, "step", "y token by token at position 70,"),
    ("drifts in decode", {"step"}, "step", "y token by token at position 1,"),
    ("says other inputs than it uses", {"inputs"}, "inputs", "argument k in forward at position 0, head 0"),
    (
        "misreads an output gradient that is not contiguous",
        {"strided gradients"},
        "strided gradients",
        "in memory with swapped axes: the gradient of q at position 1,",
    ),
    ("is one in a thousand off", VALUES, "values", "length 1, the output at position 0, head 0"),
    ("is off past 100 keys", VALUES, "values", "length 130, the output at position 100, head 0"),
    (
        "drops the gradient of v",
        {*GRADIENTS, "slope", "bfloat16", "trained"},
        "gradients",
        "length 1, the gradient of v is missing, expected up to 2.",
    ),
    ("forms the threshold in bfloat16", {"bfloat16"}, "bfloat16", "the gradient of q at position "),
    ("rounds float64 in its reference", VALUES, "values", "the reference turns float64 into float32"),
    ("says that it keeps no state", {"cost"}, "cost", "it says 0 bytes of state after 130 tokens, step holds 33,280"),
]
for head in HEADS:
    CASES += [
        (f"has a wrong head {head}", VALUES, "values", f"length 1, the output at position 0, head {head}"),
        (
            f"has a wrong gradient for head {head} of k",
            {*GRADIENTS, "slope"},
            "gradients",
            f"length 7, the gradient of k at position 0, head {head},",
        ),
        (f"has a wrong gradient for head {head} and no reference", {"slope"}, "slope", "along a random direction of "),
    ]


def broken(spec: MixerSpec, *, seed: int = 0, doc: str = DOC) -> dict[str, str]:
    """The claims that a mixer breaks, and what is said of each."""
    found = examine(spec, spec.Config(), seed=seed, doc=doc)
    return {finding.name: finding.detail for finding in found if finding.passed is False}


@pytest.mark.parametrize(("name", "claims", "named", "says"), CASES, ids=[case[0] for case in CASES])
def test_a_planted_fault_is_found_and_named(name: str, claims: set[str], named: str, says: str) -> None:
    found = broken(SPECS[name])
    assert set(found) == claims
    assert says in found[named]


def test_every_planted_fault_is_in_the_list_and_every_claim_has_one() -> None:
    assert {case[0] for case in CASES} == set(SPECS)
    assert {claim for case in CASES for claim in case[1]} == set(CLAIMS) - {"docstring", "config"}


@pytest.mark.parametrize("seed", range(3))
def test_the_sound_mixer_that_faults_are_planted_in_breaks_nothing(seed: int) -> None:
    assert broken(SOUND, seed=seed) == {}


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(
    "name",
    [
        "forms the threshold in bfloat16",
        "drifts in decode",
        *(f"has a wrong gradient for head {head} and no reference" for head in HEADS),
    ],
)
def test_subtle_faults_are_found_whatever_the_seed(name: str, seed: int) -> None:
    named = {case[0]: case[2] for case in CASES}
    assert named[name] in broken(SPECS[name], seed=seed)


@pytest.mark.parametrize("row", [0, 1])
def test_a_row_that_reads_the_other_is_found_whichever_of_the_two_it_is(row: int) -> None:
    class OneWay(Layer):
        def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
            y = super().forward(x, shared)
            return torch.cat([y[:1], y[1:] + 0.1 * y[:1]] if row else [y[:1] + 0.1 * y[1:].sum(0), y[1:]])

    found = {finding.name: finding for finding in examine(dataclasses.replace(SOUND, Layer=OneWay), Config(), doc=DOC)}
    assert found["batch"].detail.startswith(f"y with the other row changed at position 0, row {row}, channel 0 is ")
    assert found["causal"].detail == "`batch` is broken"


def test_what_is_not_finite_or_not_repeated_is_shown_at_its_first_place() -> None:
    class Late(Layer):
        def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
            y = super().forward(x, shared)
            return torch.cat([y[:, :80], y[:, 80:] * torch.nan], dim=1)

    class Counts(Layer):
        calls = 0.0

        def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
            self.calls += 1.0
            return super().forward(x, shared) * 0 + self.calls

    said = broken(dataclasses.replace(SOUND, Layer=Late))["shape"]
    assert said == "at length 130 the output has entries that are not finite: position 80, row 0, channel 0 is nan"
    said = broken(dataclasses.replace(SOUND, Layer=Counts))["deterministic"]
    assert said.endswith("by up to 2 from one call to the next: position 0, row 0, channel 0 is 1, then 3")


def test_a_layer_that_returns_nothing_is_told_the_shape_it_owes() -> None:
    class Nothing(Layer):
        def forward(self, x: Tensor, shared: dict[str, Any]) -> Any:
            super().forward(x, shared)

    said = broken(dataclasses.replace(SOUND, Layer=Nothing))["shape"]
    assert said == "at length 1: NoneType came out for [2, 1, 32]; the shape must stay"


def test_a_broken_claim_comes_before_those_it_would_spoil() -> None:
    spec = SPECS["drops out in eval mode"]
    for finding in examine(spec, Config(), doc=DOC, claims=["causal", "docstring", "slope"]):
        if finding.name == "deterministic":
            assert finding.passed is False
            continue
        expected = (True, "") if finding.name == "docstring" else (None, "`deterministic` is broken")
        assert (finding.passed, finding.detail) == expected


def test_config_layer_and_spec_are_enough_and_the_rest_is_not_given() -> None:
    class Plain(nn.Module):
        def __init__(self, dims: Any, config: Any, *, layer_index: int, core: Any) -> None:
            super().__init__()
            self.mix = nn.Linear(dims.model_dim, dims.model_dim)

        def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
            # The result is a view that is not contiguous: it must just work.
            return self.mix(x.cumsum(1)).transpose(0, 1).contiguous().transpose(0, 1)

    found = {f.name: f for f in examine(dataclasses.replace(MINIMAL, Layer=Plain), Config(), doc=DOC)}
    assert [name for name, finding in found.items() if finding.passed is False] == []
    assert {name: f.detail for name, f in found.items() if f.passed is None} == {
        "step": "Layer.step is not given",
        **dict.fromkeys(("inputs", *VALUES, "bfloat16"), "no reference is given"),
        "cost": "no cost is given",
    }
    assert {finding.backend for finding in found.values()} == {"", "own"}


def test_a_layer_that_cannot_be_made_is_said_once() -> None:
    class Refuses(Layer):
        def __init__(self, dims: Any, config: Any, *, layer_index: int, core: Any) -> None:
            raise ValueError("needs heads of 64")

    said = {"shape": "Layer(...) raises ValueError: needs heads of 64"}
    assert broken(dataclasses.replace(SOUND, Layer=Refuses)) == said
    assert "no torch.nn.Module" in broken(dataclasses.replace(SOUND, Layer=lambda *a, **k: 1))["shape"]


@pytest.mark.parametrize(
    ("doc", "says"),
    [
        ("Attention.\n\nSource: a test.", "no formula"),
        ("Attention.\n\n    o = v\n", "no source"),
    ],
)
def test_a_docstring_without_formula_or_source_is_said(doc: str, says: str) -> None:
    assert says in broken(SOUND, doc=doc)["docstring"]


def test_a_config_that_does_not_come_back_is_said() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Drops(Config):
        gain: float = 1.0

        def __post_init__(self) -> None:
            object.__setattr__(self, "gain", self.gain + 0.5)

    assert "gain=1.5 comes back from JSON as 2.0" in broken(dataclasses.replace(SOUND, Config=Drops))["config"]


def test_a_gradient_of_nan_is_a_broken_claim() -> None:
    class NaN(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * float("nan")

    class Bad(Layer):
        def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
            return NaN.apply(super().forward(x, shared))

    assert broken(dataclasses.replace(SOUND, Layer=Bad)) == {
        "shape": "the gradient of x at the initial values has entries that are not finite: position 0, row 0, "
        "channel 0 is nan"
    }
