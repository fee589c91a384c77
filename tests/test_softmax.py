"""Softmax attention: against torch's plain kernel in float64, and its own identities."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness import ops, registry
from harness.contract import examine
from harness.contract.examine import DIMS
from harness.contract.subject import generator
from variants.softmax import SPEC, Config, reference

HEADS, DEPTH = 4, 6


def inputs(queries: int, keys: int, groups: int, *, width: int = DEPTH, scale: float = 1.0) -> list[Tensor]:
    """q, k, v in float64, leaves."""
    shapes = ((2, queries, HEADS, DEPTH), (2, keys, groups, DEPTH), (2, keys, groups, width))
    source = generator(queries, keys, groups, width)
    return [(torch.randn(shape, generator=source, dtype=torch.float64) * scale).requires_grad_() for shape in shapes]


def torch_math(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """torch's unfused attention, [B, T, H, Dv]."""
    with sdpa_kernel(SDPBackend.MATH):
        out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask, enable_gqa=True)
    return out.transpose(1, 2)


def alibi_mask(queries: int, keys: int, window: int | None) -> Tensor:
    """ALiBi and causality as one term of the scores, from slopes and distances alone."""
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    mask = -ops.alibi_slopes(HEADS).double()[:, None, None] * distance
    return mask.masked_fill((distance < 0) | (distance >= (window or keys)), float("-inf"))


@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (3, 9), (1, 9)])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("alibi", [False, True])
def test_reference_is_torch_attention(queries: int, keys: int, groups: int, window: int | None, alibi: bool) -> None:
    q, k, v = inputs(queries, keys, groups, width=5)
    bias = -ops.alibi_slopes(HEADS).double()[:, None] * torch.arange(keys) if alibi else None
    mask = alibi_mask(queries, keys, window) if alibi else ops.visible(queries, keys, window=window)
    ours, theirs = reference(q, k, v, bias=bias, window=window), torch_math(q, k, v, mask)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)
    g = torch.randn(ours.shape, generator=generator("g"), dtype=torch.float64)
    found = [torch.autograd.grad(out, (q, k, v), g) for out in (ours, theirs)]
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_the_first_row_returns_its_own_value() -> None:
    q, k, v = inputs(5, 5, 2)
    torch.testing.assert_close(reference(q, k, v)[:, 0], ops.repeat_heads(v, HEADS)[:, 0])


def test_a_window_of_one_returns_the_values_and_a_long_one_changes_nothing() -> None:
    q, k, v = inputs(7, 7, 4)
    assert torch.equal(reference(q, k, v, window=1), v)
    assert torch.equal(reference(q, k, v, window=7), reference(q, k, v))


def test_one_key_head_is_that_head_repeated() -> None:
    q, k, v = inputs(6, 6, 1)
    assert torch.equal(reference(q, k, v), reference(q, k.expand(-1, -1, HEADS, -1), v.expand(-1, -1, HEADS, -1)))


def test_grouped_heads_are_interleaved() -> None:
    q, k, v = inputs(6, 6, 2)
    whole = reference(q, k, v)
    for head in range(HEADS):
        group = slice(head // 2, head // 2 + 1)
        alone = reference(q[:, :, head : head + 1], k[:, :, group], v[:, :, group])
        torch.testing.assert_close(whole[:, :, head : head + 1], alone)


def test_a_constant_added_to_all_scores_of_a_head_changes_nothing() -> None:
    q, k, v = inputs(6, 6, 4)
    constant = torch.full((HEADS, 6), 3.0, dtype=torch.float64)
    torch.testing.assert_close(reference(q, k, v, bias=constant), reference(q, k, v))


def test_the_identity_in_place_of_values_is_the_attention_map() -> None:
    q, k, v = inputs(6, 6, 4)
    eye = torch.eye(6, dtype=torch.float64)[None, :, None, :].expand(2, 6, HEADS, 6)
    weights = reference(q, k, eye)  # [B, T, H, S]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6, HEADS, dtype=torch.float64))
    assert not bool(weights.transpose(1, 2).triu(1).any())
    torch.testing.assert_close(torch.einsum("bths,bshd->bthd", weights, v), reference(q, k, v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_of_400_stay_finite_and_pick_the_largest(dtype: torch.dtype) -> None:
    q = torch.zeros(1, 4, 1, 4, dtype=dtype)
    k, v = torch.zeros_like(q), torch.randn(1, 4, 1, 4, generator=generator("v"), dtype=dtype)
    q[..., 0] = 2.0
    k[0, :, 0, 0] = torch.tensor([-400.0, 400.0, -400.0, 0.0])
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = reference(*leaves)
    assert torch.equal(out[0, :, 0], v[0, [0, 1, 1, 1], 0])
    assert all(bool(torch.isfinite(g).all()) for g in torch.autograd.grad(out.sum(), leaves))


def test_gradients_are_right_head_by_head() -> None:
    q, k, v = inputs(4, 5, 2)
    bias = torch.randn(HEADS, 3, generator=generator("bias"), dtype=torch.float64).requires_grad_()
    for head in range(HEADS):

        def one(*leaves: Tensor, head: int = head) -> Tensor:
            q, k, v, bias = leaves
            return reference(q, k, v, bias=bias, window=4)[:, :, head]

        assert torch.autograd.gradcheck(one, (q, k, v, bias))


@pytest.mark.parametrize(
    "fields",
    [
        {"window": 5},
        {"window": 100},
        {"kv_heads": 1},
        {"positions": "alibi", "window": 9, "kv_heads": 1},
    ],
    ids=str,
)
def test_windows_and_groups_keep_the_contract(fields: dict[str, object]) -> None:
    found = examine(SPEC, Config(**fields))
    assert [finding for finding in found if finding.passed is False] == []
    tried = [finding.detail for finding in found if finding.name == "causal"]
    assert tried == [f"lengths 1, 7, 63, 130{', 166' * (fields.get('window') == 100)}, 259; both modes"] * 2


def test_flash_is_softmax_with_the_fused_kernel_pinned() -> None:
    flash = registry.find("flash")
    assert (flash.key, dict(flash.pinned)) == ("softmax", {"backend": "sdpa"})


def test_alibi_of_the_layer_is_minus_slope_times_distance() -> None:
    layer = SPEC.Layer(DIMS, Config(positions="alibi"), layer_index=0, core=reference)
    table = layer.arguments(9)["bias"]
    torch.testing.assert_close(table, -ops.alibi_slopes(DIMS.num_heads)[:, None] * torch.arange(9.0))
