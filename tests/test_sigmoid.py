"""Sigmoid attention: its formula, the mask before the scalar, and blocks of scores that change no number."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness import ops, registry
from harness.contract import examine
from harness.contract.examine import DIMS
from harness.contract.subject import generator
from harness.ops import blocks
from variants import softmax
from variants.sigmoid import SPEC, Config, blocked, reference

HEADS, DEPTH = 4, 6
CORES = pytest.mark.parametrize("core", [reference, blocked])


def randn(*shape: int, key: str = "") -> Tensor:
    return torch.randn(shape, generator=generator(shape, key), dtype=torch.float64)


def inputs(queries: int, keys: int, groups: int = HEADS, width: int = DEPTH) -> list[Tensor]:
    """q, k, v in float64."""
    return [
        randn(2, queries, HEADS, DEPTH, key="q"),
        randn(2, keys, groups, DEPTH, key="k"),
        randn(2, keys, groups, width, key="v"),
    ]


def gradients(core, leaves: list[Tensor], g: Tensor, **options: object) -> list[Tensor]:
    """Output, and the gradient of each leaf."""
    leaves = [x.detach().requires_grad_() for x in leaves]
    out = core(*leaves, **options)
    return [out.detach(), *torch.autograd.grad(out, leaves, g)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four positions, two key heads at a time: short sequences cross many edges."""
    monkeypatch.setattr(blocks, "block_size", lambda keys, **_: min(keys, 4))
    monkeypatch.setattr(blocks, "SCORES", 32)


@CORES
@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_cores_are_the_formula_written_with_loops(core, alibi: bool) -> None:
    q, k, v = inputs(3, 6, 2)
    out = core(q, k, v, bias=-1.5, alibi=alibi)
    slopes = ops.alibi_slopes(HEADS).tolist() if alibi else [0.0] * HEADS
    for head in range(HEADS):
        for t in range(3):
            want = torch.zeros(DEPTH, dtype=torch.float64)
            for j in range(6 - 3 + t + 1):
                score = float(q[1, t, head] @ k[1, j, head // 2]) / math.sqrt(DEPTH) - slopes[head] * (3 + t - j)
                want += v[1, j, head // 2] / (1 + math.exp(1.5 - score))
            torch.testing.assert_close(out[1, t, head], want, rtol=0, atol=1e-14)


@CORES
@pytest.mark.parametrize("options", [{}, {"alibi": True}])
@pytest.mark.usefixtures("small_blocks")
def test_hidden_keys_weigh_exactly_nothing_however_large_the_scalar(core, options: dict[str, bool]) -> None:
    q, k, v = inputs(9, 9)
    eye = torch.eye(9, dtype=torch.float64)[None, :, None, :].expand(2, 9, HEADS, 9)
    weights = core(q, k, eye, bias=50.0, **options).transpose(1, 2)
    assert not bool(weights.triu(1).any())
    assert bool((weights.tril() > 0).eq(torch.ones(9, 9).tril().bool()).all())
    before = core(q, k, v, bias=5.0, **options)
    k[:, 8], v[:, 8] = -7.0, 1e6
    assert torch.equal(core(q, k, v, bias=5.0, **options)[:, :8], before[:, :8])


def test_the_scalar_stands_in_for_the_normaliser() -> None:
    q, k, _ = inputs(16, 16)
    ones = torch.ones(2, 16, HEADS, 1, dtype=torch.float64)
    sums = reference(q * 0, k, ones, bias=-math.log(16))
    torch.testing.assert_close(sums[0, :, 0, 0], torch.arange(1, 17, dtype=torch.float64) / 17)


@pytest.mark.parametrize("bias", [-3.0, 0.0, torch.tensor(-3.0), torch.tensor(0.7, dtype=torch.float64)])
@pytest.mark.usefixtures("small_blocks")
def test_the_scalar_may_be_a_number_or_a_tensor_and_its_gradient_is_the_sum_of_all(bias: float | Tensor) -> None:
    q, k, v = inputs(6, 9, 2)
    g = randn(2, 6, HEADS, DEPTH, key="g")
    torch.testing.assert_close(blocked(q, k, v, bias=bias), reference(q, k, v, bias=bias), rtol=0, atol=1e-13)
    found = []
    for core in (reference, blocked):
        scalar = torch.as_tensor(bias).clone().requires_grad_()
        found += torch.autograd.grad(core(q, k, v, bias=scalar), scalar, g)
    assert found[0].dtype == found[1].dtype
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=0)


@settings(max_examples=60)
@given(
    st.integers(2, 13),
    st.integers(0, 11),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 7),
    st.integers(1, 5),
    st.booleans(),
)
def test_blocks_give_the_values_and_gradients_of_the_reference(
    queries: int, prefix: int, groups: int, width: int, block: int, alibi: bool
) -> None:
    leaves, g = inputs(queries, queries + prefix, groups, width), randn(2, queries, HEADS, width, key="g")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "block_size", lambda keys, **_: min(keys, block))
        patch.setattr(blocks, "SCORES", 3 * block * block)
        found = gradients(blocked, leaves, g, bias=-1.0, alibi=alibi)
    for mine, want in zip(found, gradients(reference, leaves, g, bias=-1.0, alibi=alibi), strict=True):
        torch.testing.assert_close(mine, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("queries", "keys"), [(65, 65), (512, 512), (520, 520), (7, 700), (300, 2100)])
def test_each_size_of_a_block_gives_the_values_and_gradients_of_the_reference(queries: int, keys: int) -> None:
    leaves = [x[:1].float() for x in inputs(queries, keys, 2)]
    g = randn(1, queries, HEADS, DEPTH, key="g").float()
    for mine, want in zip(
        *(gradients(core, leaves, g, bias=-math.log(keys)) for core in (blocked, reference)), strict=True
    ):
        torch.testing.assert_close(mine, want, rtol=0, atol=1e-5 * float(want.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@CORES
@pytest.mark.usefixtures("small_blocks")
def test_scores_of_400_are_steps_with_finite_gradients(core, dtype: torch.dtype) -> None:
    q = torch.zeros(1, 9, 1, 4, dtype=dtype)
    k, v = torch.zeros_like(q), randn(1, 9, 1, 4, key="v").to(dtype)
    q[..., 0] = 2.0
    k[0, :, 0, 0] = torch.tensor([400.0, -400, -400, 400, 0, -400, 400, 0, -400])
    leaves = [x.requires_grad_() for x in (q, k, v)]
    for options in ({}, {"row_norm": True}) if core is reference else ({},):
        out = core(*leaves, bias=0.0, **options)
        found = torch.autograd.grad(out.sum(), leaves)
        assert all(bool(torch.isfinite(x).all()) for x in (out, *found))
    weights = torch.tensor([1.0, 0, 0, 1, 0.5, 0, 1, 0.5, 0], dtype=dtype)
    want = (weights[:, None] * v[0, :, 0]).cumsum(0)
    torch.testing.assert_close(core(*leaves, bias=0.0)[0, :, 0], want)


@pytest.mark.usefixtures("small_blocks")
def test_gradients_in_blocks_are_the_slope() -> None:
    q, k, v = (x[:1, :, :2].clone().requires_grad_() for x in inputs(5, 6))
    bias = torch.tensor(-0.5, dtype=torch.float64, requires_grad=True)
    for alibi in (False, True):
        assert torch.autograd.gradcheck(lambda *x, a=alibi: blocked(*x[:3], bias=x[3], alibi=a), (q, k, v, bias))


def test_rows_divided_by_their_sum_approach_softmax_as_the_scalar_falls() -> None:
    q, k, v = inputs(5, 9, 2)
    shares = reference(q, k, torch.ones_like(v), bias=-2.0, row_norm=True)
    torch.testing.assert_close(shares, torch.ones_like(shares))
    plain = reference(q, k, v, bias=-2.0) / reference(q, k, torch.ones_like(v), bias=-2.0)
    torch.testing.assert_close(reference(q, k, v, bias=-2.0, row_norm=True), plain)
    torch.testing.assert_close(reference(q, k, v, bias=-60.0, row_norm=True), softmax.reference(q, k, v))


def test_blocks_refuse_to_divide_rows_and_auto_takes_the_reference() -> None:
    config = Config(row_norm=True)
    chosen = registry.choose_backend(SPEC, "auto", device="cpu", dtype="float32", dims=DIMS, config=config)
    assert chosen == "reference"
    assert registry.choose_backend(SPEC, "auto", device="cpu", dtype="float32", dims=DIMS, config=Config()) == "blocked"
    with pytest.raises(NotImplementedError, match="sum of a row"):
        blocked(*inputs(2, 2), bias=0.0, row_norm=True)


class Largest(TorchDispatchMode):
    """The largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(x, Tensor):
                self.entries = max(self.entries, x.numel())
        return result


def test_blocks_hold_no_matrix_of_queries_by_keys() -> None:
    length = 1100
    q, k, v = (torch.randn(1, length, 1, 4, requires_grad=True) for _ in range(3))
    for core, holds in ((blocked, False), (reference, True)):
        with Largest() as seen:
            torch.autograd.grad(core(q, k, v, bias=-7.0).sum(), (q, k, v))
        assert (seen.entries >= length * length) == holds


@CORES
def test_the_last_queries_alone_give_the_last_rows(core) -> None:
    q, k, v = inputs(70, 70, 2)
    whole = core(q, k, v, bias=-4.0, alibi=True)
    for queries in (1, 2, 69):
        torch.testing.assert_close(core(q[:, -queries:], k, v, bias=-4.0, alibi=True), whole[:, -queries:])


def test_the_scalar_of_the_layer_is_that_of_the_training_length_at_every_length() -> None:
    layer = SPEC.Layer(DIMS, Config(), layer_index=0, core=reference)
    assert {layer.arguments(keys)["bias"] for keys in (1, DIMS.length, 9 * DIMS.length)} == {-math.log(DIMS.length)}
    assert SPEC.Layer(DIMS, Config(bias=False), layer_index=0, core=reference).arguments(5)["bias"] == 0.0


def test_the_norm_comes_before_the_positions_and_takes_away_the_scale_of_q_and_k() -> None:
    layer = SPEC.Layer(DIMS, Config(), layer_index=0, core=reference)
    names = [f"{name}.weight" for name in ("q", "k", "v", "o", "q_norm", "k_norm")]
    assert [name for name, _ in layer.named_parameters()] == names
    with torch.no_grad():
        layer.q_norm.weight.copy_(torch.rand(DIMS.head_dim, generator=generator("scale")) + 0.5)
        x = torch.randn(2, 9, DIMS.model_dim, generator=generator("x"))
        q, _, _ = layer.project(x, start=3)
        plain = layer.q(x).unflatten(-1, (DIMS.num_heads, -1))
        normed = plain / plain.square().mean(-1, keepdim=True).sqrt() * layer.q_norm.weight
        torch.testing.assert_close(q, ops.rotate(normed, start=3), rtol=1e-4, atol=1e-5)
        before = layer(x, {})
        layer.q.weight *= 30.0
        layer.k.weight *= 30.0
        torch.testing.assert_close(layer(x, {}), before, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"kv_heads": 1},
        {"kv_heads": 1, "positions": "alibi", "bias": False},
        {"row_norm": True, "positions": "alibi"},
    ],
    ids=str,
)
def test_groups_positions_and_row_sums_keep_the_contract(fields: dict[str, object]) -> None:
    assert [finding for finding in examine(SPEC, Config(**fields)) if finding.passed is False] == []


def test_alibi_of_sixteen_heads_is_formed_in_the_precision_of_the_scores() -> None:
    # Slopes of 16 heads are no powers of two: slope times distance rounds in float32.
    q, k, v = (torch.randn(1, 90, 16, 2, generator=generator(n), dtype=torch.float64) for n in range(3))
    plain, fast = (core(q, k, v, bias=-1.0, alibi=True) for core in (reference, blocked))
    torch.testing.assert_close(plain, fast, rtol=0, atol=1e-13)
