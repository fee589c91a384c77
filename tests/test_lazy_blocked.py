"""The blocked backend of Lazy Attention is its reference: outputs, all five gradients, and what it skips."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness import ops
from harness.contract.subject import call, generator, pullback
from harness.ops import elastic, elastic_plan
from variants.lazy import reference

HEADS, WIDTH, VALUES = 4, 6, 5
OPTIONS = ({}, {"divide_by_n": False}, {"renormalise": True})


def arguments(
    queries: int,
    keys: int,
    *,
    groups: int = HEADS,
    table: int | None = None,
    tau: float | None = None,
    batch: int = 2,
    scale: float = 1.0,
) -> dict[str, Any]:
    """q, k, v, bias and tau in float64; the heads' thresholds lie around tau."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator(shape, queries), dtype=torch.float64)

    spread = torch.tensor([0.0, 0.1, -0.1, 0.2], dtype=torch.float64)
    return {
        "q": draw(batch, queries, HEADS, WIDTH) * scale,
        "k": draw(batch, keys, groups, WIDTH),
        "v": draw(batch, keys, groups, VALUES),
        "bias": None if table is None else draw(HEADS, table),
        "tau": None if tau is None else tau + spread * (tau != 0),
    }


def both(given: dict[str, Any], *, dtype: torch.dtype = torch.float64, **options: bool) -> list[list[Tensor]]:
    """Output and gradients by the reference in float64 and by the blocked backend in a dtype."""
    found = []
    for core, kind in ((reference, torch.float64), (ops.elastic_attention, dtype)):
        outputs, leaves = call(core, {**given, **options}, dtype=kind)
        cotangent = torch.randn(outputs[0].shape, generator=generator("g"), dtype=torch.float64)
        gradients = pullback(outputs, leaves, [cotangent])
        found.append([outputs[0], *(torch.zeros_like(leaves[n]) if g is None else g for n, g in gradients.items())])
    return found


def assert_equal(
    given: dict[str, Any], *, dtype: torch.dtype = torch.float64, share: float = 1e-12, **options: bool
) -> None:
    wanted, got = both(given, dtype=dtype, **options)
    for want, have in zip(wanted, got, strict=True):
        assert have.dtype == dtype
        largest = max(float(want.detach().abs().max()), 1e-2)
        torch.testing.assert_close(have.double(), want, rtol=0, atol=share * largest)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("tau", [None, -1.0, -0.4, 0.0, 0.5])
@pytest.mark.parametrize("table", [None, 3, 500])
def test_blocked_is_the_reference_with_and_without_table_and_threshold(
    table: int | None, tau: float | None, options: dict[str, bool]
) -> None:
    if options.get("divide_by_n") is False and tau is not None:
        tau *= 0.02
    assert_equal(arguments(150, 150, table=table, tau=tau), **options)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 90), (5, 200), (63, 64), (130, 130), (200, 205)])
@pytest.mark.parametrize("groups", [HEADS, 2, 1])
def test_any_length_fewer_queries_than_keys_and_grouped_heads(queries: int, keys: int, groups: int) -> None:
    assert_equal(arguments(queries, keys, groups=groups, table=70, tau=-0.8))
    assert_equal(arguments(queries, keys, groups=groups, table=70, tau=0.3))


@given(
    queries=st.integers(1, 80),
    more=st.integers(0, 40),
    table=st.integers(1, 130),
    tau=st.floats(-1.5, 0.5),
    rows=st.sampled_from([3, 16, 64]),
    scores=st.sampled_from([1, 1 << 10, 1 << 19]),
)
@settings(max_examples=60)
def test_no_cut_into_parts_and_blocks_changes_a_number(
    queries: int, more: int, table: int, tau: float, rows: int, scores: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elastic_plan, "block_rows", lambda queries, keys, device: min(rows, queries))
        patch.setitem(elastic_plan.SCORES, "cpu", scores)
        assert_equal(arguments(queries, queries + more, groups=2, table=table, tau=tau), share=1e-11)


@pytest.mark.parametrize("tau", [-1.0, 0.4])
def test_in_float32_it_keeps_the_tolerances_of_the_contract(tau: float) -> None:
    assert_equal(arguments(300, 300, table=100, tau=tau), dtype=torch.float32, share=2e-5)


@pytest.mark.parametrize("tau", [-1.0, 0.5])
def test_scores_of_400_are_exact_and_finite(tau: float) -> None:
    given = arguments(140, 140, table=10, tau=tau)
    given["q"], given["k"] = given["q"].sign() * 400, given["k"].sign()
    assert_equal(given)
    outputs, leaves = call(ops.elastic_attention, given, dtype=torch.float32)
    found = pullback(outputs, leaves, [torch.ones_like(outputs[0])])
    assert all(bool(torch.isfinite(x).all()) for x in (*outputs, *found.values()) if x is not None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("renormalise", [False, True])
def test_uniform_rows_and_the_first_token_are_cut_whole_at_minus_one(dtype: torch.dtype, renormalise: bool) -> None:
    given = arguments(140, 140, tau=-1.0)
    given["tau"] = torch.full((HEADS,), -1.0, dtype=torch.float64)
    given["q"] = torch.zeros_like(given["q"])
    outputs, leaves = call(ops.elastic_attention, {**given, "renormalise": renormalise}, dtype=dtype)
    assert not bool(outputs[0].any())
    assert not any(bool(g.any()) for g in pullback(outputs, leaves, [torch.ones_like(outputs[0])]).values())


def test_output_gradients_of_any_stride_give_the_same_gradients() -> None:
    given = arguments(70, 70, table=9, tau=-0.7)
    outputs, leaves = call(ops.elastic_attention, given)
    flat = torch.randn(outputs[0].shape, generator=generator("g"), dtype=torch.float64)
    for loose in (flat.transpose(0, 3).contiguous().transpose(0, 3), torch.stack([flat, flat], -1)[..., 0]):
        outputs, leaves = call(ops.elastic_attention, given)
        want = torch.autograd.grad(outputs[0], list(leaves.values()), flat, retain_graph=True)
        got = torch.autograd.grad(outputs[0], list(leaves.values()), loose)
        assert all(torch.equal(x, y) for x, y in zip(want, got, strict=True))


@pytest.mark.parametrize("options", [{}, {"renormalise": True}], ids=str)
@pytest.mark.parametrize("queries", [700, 100])
def test_keys_that_no_query_keeps_are_skipped_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, queries: int, options: dict[str, bool]
) -> None:
    monkeypatch.setattr(elastic, "LONG", 256)
    monkeypatch.setattr(elastic_plan, "SHORT", 128)
    given = arguments(queries, 700, tau=-1.0, batch=1)
    # A table that falls with distance, and one that rises at its end: the first keys and the last are kept.
    given["bias"] = -torch.arange(690.0, dtype=torch.float64).expand(HEADS, -1) / 10
    assert_equal(given, **options)
    tensors = {name: x.requires_grad_() if isinstance(x, Tensor) else x for name, x in given.items()}
    runs = ops.elastic_attention(**tensors, **options).grad_fn.runs
    last = runs[0][-1]
    assert [alive for _, alive in last] in ([False, True], [True, False, True])
    assert last[0][0].start == 0
    assert last[-1][0].stop == 700


def test_what_is_not_asked_for_gets_no_gradient_and_the_inputs_stay() -> None:
    given = arguments(40, 40, table=9, tau=-0.7)
    before = {name: x.clone() for name, x in given.items()}
    v = given["v"].requires_grad_()
    ops.elastic_attention(**given).sum().backward()
    assert v.grad is not None
    assert all(x.grad is None for name, x in given.items() if name != "v")
    assert all(torch.equal(x.detach(), before[name]) for name, x in given.items())


@pytest.mark.parametrize("tau", [-1.0, -0.6, 0.4])
@pytest.mark.parametrize("options", OPTIONS[1:], ids=str)
def test_weights_kept_and_weights_formed_anew_are_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, tau: float, options: dict[str, bool]
) -> None:
    given = arguments(200, 210, groups=2, table=70, tau=tau)
    found = []
    # All parts keep theirs, one of them does, none does.
    for numbers in (1 << 24, 60_000, 0):
        monkeypatch.setitem(elastic.KEPT, "cpu", numbers)
        monkeypatch.setitem(elastic_plan.SCORES, "cpu", 1 << 15)
        leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
        out = ops.elastic_attention(**leaves, **options)
        saved = [x for x in out.grad_fn.saved_tensors[7:] if x is not None]
        found.append((len(saved), out, torch.autograd.grad(out.square().sum(), list(leaves.values()))))
    assert found[0][0] > found[1][0] > found[2][0] == 0
    for _, out, gradients in found[1:]:
        assert torch.equal(out, found[0][1])
        assert all(torch.equal(x, y) for x, y in zip(gradients, found[0][2], strict=True))


def test_without_gradients_no_weights_are_kept() -> None:
    given = {name: x.requires_grad_() for name, x in arguments(40, 40, table=9, tau=-0.7).items()}
    with torch.no_grad():
        plain = ops.elastic_attention(**given)
    assert plain.grad_fn is None
    assert torch.equal(plain, ops.elastic_attention(**given))


@pytest.mark.parametrize("length", [5, 40, 1100])
@pytest.mark.parametrize("name", ["q", "k", "v", "bias", "tau"])
def test_what_is_not_a_number_never_turns_into_a_healthy_zero(length: int, name: str) -> None:
    given = arguments(length, length, table=9, tau=-1.0, batch=1)
    given = {key: x.float() for key, x in given.items()}
    given[name].view(-1)[0] = float("nan")
    with_reference, blocked = reference(**given), ops.elastic_attention(**given)
    assert torch.equal(with_reference.isnan().any(-1), blocked.isnan().any(-1))
    assert bool(blocked.isnan().any())
