"""The mathematics that variants share: positions, masks, softmax, heads, caches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness import ops
from harness.contract.subject import generator
from harness.ops import kernels
from harness.spec import Dims

COUNTS = st.integers(1, 9)


def randn(*shape: int, key: str = "", dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=generator(shape, key), dtype=torch.float64).to(dtype)


@given(queries=COUNTS, earlier=st.integers(0, 9), window=st.none() | st.integers(1, 12))
@settings(max_examples=40)
def test_queries_are_the_last_positions_and_a_window_counts_the_query_itself(
    queries: int, earlier: int, window: int | None
) -> None:
    keys = queries + earlier
    seen = ops.visible(queries, keys, window=window)
    for t in range(queries):
        at = earlier + t
        expected = [j <= at and (window is None or at - j < window) for j in range(keys)]
        assert seen[t].tolist() == expected
    if window is None:
        assert torch.equal(seen.sum(-1).float(), ops.visible_count(queries, keys))


def test_counts_of_visible_keys_survive_beyond_256() -> None:
    counts = ops.visible_count(3, 1001)
    assert (counts.dtype, counts.tolist()) == (torch.float32, [999.0, 1000.0, 1001.0])


def test_key_heads_serve_neighbouring_query_heads_and_are_not_tiled() -> None:
    x = torch.arange(2).reshape(1, 1, 2, 1)
    assert ops.repeat_heads(x, 6).flatten().tolist() == [0, 0, 0, 1, 1, 1]
    assert ops.repeat_heads(x, 2) is x


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rotated_scores_depend_on_the_distance_alone(dtype: torch.dtype) -> None:
    q, k = randn(1, 1, 2, 8, key="q", dtype=dtype), randn(1, 1, 2, 8, key="k", dtype=dtype)

    def score(query: int, key: int) -> Tensor:
        return (ops.rotate(q, start=query) * ops.rotate(k, start=key)).sum(-1)

    atol = 1e-12 if dtype == torch.float64 else 5e-4
    for distance in (0, 1, 17):
        for start in (1, 100, 1000):
            torch.testing.assert_close(score(start + distance, start), score(distance, 0), rtol=0, atol=atol)
    assert (score(5, 3) - score(4, 3)).abs().max() > 0.1


def test_rotation_turns_half_split_pairs_by_position_times_frequency() -> None:
    x = torch.zeros(1, 1, 1, 4, dtype=torch.float64)
    x[..., 1] = 1.0
    angle = 7 * 100.0 ** (-2 / 4)
    expected = [0.0, math.cos(angle), 0.0, math.sin(angle)]
    assert ops.rotate(x, start=7, base=100.0).flatten().tolist() == pytest.approx(expected, abs=1e-15)


def test_rotation_keeps_the_length_and_continues_where_a_cache_stands() -> None:
    x = randn(2, 9, 2, 8)
    turned = ops.rotate(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-14, atol=0)
    assert torch.equal(turned[:, :1], x[:, :1])
    torch.testing.assert_close(ops.rotate(x[:, 4:], start=4), turned[:, 4:], rtol=0, atol=0)


def test_angles_are_formed_in_float32_for_bfloat16_inputs() -> None:
    x = randn(1, 1, 1, 8).to(torch.bfloat16)
    for position in (257, 4001):
        got, wanted = ops.rotate(x, start=position), ops.rotate(x.double(), start=position)
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got.double(), wanted, rtol=2**-8, atol=2e-3)


def test_alibi_slopes_are_a_geometric_series_filled_from_the_next_power_of_two() -> None:
    assert ops.alibi_slopes(4).tolist() == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    assert ops.alibi_slopes(1).tolist() == [2.0**-8]
    assert ops.alibi_slopes(6).tolist() == pytest.approx([*ops.alibi_slopes(4).tolist(), 2.0**-1, 2.0**-3])
    twelve = [2.0**-h for h in range(1, 9)] + [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]
    assert ops.alibi_slopes(12).tolist() == pytest.approx(twelve)


@given(queries=COUNTS, earlier=st.integers(0, 9), entries=st.integers(1, 20))
@settings(max_examples=40)
def test_a_table_over_distance_is_zero_past_its_end_and_ahead(queries: int, earlier: int, entries: int) -> None:
    keys = queries + earlier
    table = torch.arange(1.0, 2 * entries + 1).reshape(2, entries)
    bias = ops.distance_bias(table, queries, keys)
    for t in range(queries):
        for j in range(keys):
            distance = earlier + t - j
            expected = table[:, distance] if 0 <= distance < entries else torch.zeros(2)
            assert torch.equal(bias[:, t, j], expected)


def test_the_gradient_of_a_table_sums_over_diagonals() -> None:
    table = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    g = randn(1, 5, 5)
    (found,) = torch.autograd.grad(ops.distance_bias(table, 5, 5), table, g)
    expected = [float(g[0].diagonal(-distance).sum()) for distance in range(3)]
    assert found[0].tolist() == pytest.approx(expected)


@given(seed=st.integers(0, 1000), size=st.sampled_from([1e-3, 1.0, 400.0]))
@settings(max_examples=30)
def test_softmax_weights_are_a_distribution_over_what_is_seen(seed: int, size: float) -> None:
    scores = torch.randn(2, 3, 6, 6, generator=generator(seed), dtype=torch.float64) * size
    seen = ops.visible(6, 6, window=4)
    weights = ops.softmax_weights(scores, seen)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 6, dtype=torch.float64))
    assert bool((weights >= 0).all())
    assert not bool(weights.masked_fill(seen, 0.0).any())
    expected = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    torch.testing.assert_close(weights, expected, rtol=1e-12, atol=0)


def test_a_row_that_sees_nothing_is_zero_with_zero_gradient() -> None:
    scores = randn(1, 1, 3, 3).requires_grad_()
    seen = torch.tensor([[False] * 3, [True, False, False], [True, True, True]])
    weights = ops.softmax_weights(scores, seen)
    assert weights[0, 0].sum(-1).tolist() == pytest.approx([0.0, 1.0, 1.0])
    (found,) = torch.autograd.grad(weights, scores, randn(1, 1, 3, 3, key="g"))
    assert bool(torch.isfinite(found).all())
    assert not bool(found[0, 0, 0].any())


def test_scores_are_scaled_by_the_width_of_queries_and_kept_wide() -> None:
    q, k = randn(1, 3, 4, 16, key="q"), randn(1, 5, 2, 16, key="k")
    expected = torch.stack([q[0, :, h] @ k[0, :, h // 2].T / 4 for h in range(4)])
    torch.testing.assert_close(ops.scores(q, k)[0], expected)
    assert ops.scores(q.bfloat16(), k.bfloat16()).dtype == torch.float32
    assert ops.at_least_float32(q) is q


@pytest.mark.parametrize("kernel", [kernels.flash_attn, kernels.flash_attn_3, kernels.flash_attn_4, kernels.xformers])
def test_a_missing_or_foreign_package_is_a_reason_and_no_error(kernel: Callable[..., Tensor]) -> None:
    reason = kernels.probe(kernel)("cpu")
    assert isinstance(reason, str)
    assert reason
    assert "\n" not in reason


@dataclass(frozen=True, kw_only=True)
class Config:
    kv_heads: int | None = None
    window: int | None = None


def score_layer(model_dim: int = 16, num_heads: int = 4, *, rope: bool = True, **fields: int) -> ops.ScoreLayer:
    class Windowed(ops.ScoreLayer):
        def arguments(self, keys: int) -> dict[str, object]:
            return {"window": self.window}

    dims = Dims(model_dim=model_dim, num_heads=num_heads, num_layers=1, length=16)
    return Windowed(dims, Config(**fields), layer_index=0, core=ops.sdpa, rope=rope)


def test_heads_that_do_not_fit_are_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="kv_heads=3 does not divide num_heads=4"):
        score_layer(kv_heads=3)
    with pytest.raises(ValueError, match="head_dim=3 is odd"):
        score_layer(12, 4)
    score_layer(12, 4, rope=False)


@pytest.mark.parametrize("window", [None, 1, 3])
def test_the_cache_holds_no_more_than_the_window_while_positions_go_on(window: int | None) -> None:
    layer = score_layer(**({} if window is None else {"window": window}), kv_heads=2)
    x = randn(2, 8, 16, dtype=torch.float32)
    expected, state = layer(x, {}), None
    for t in range(8):
        y, state = layer.step(x[:, t : t + 1], state, {})
        torch.testing.assert_close(y, expected[:, t : t + 1])
        assert state.length == t + 1
        assert state.k.shape == state.v.shape == (2, min(t + 1, window or 8), 2, 4)


def test_rotation_has_the_gradient_of_its_formula() -> None:
    x = torch.randn(2, 5, 3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: ops.rotate(y, start=3), (x,))
    g = torch.randn(5, 2, 3, 6, dtype=torch.float64).transpose(0, 1)
    (back,) = torch.autograd.grad(ops.rotate(x, start=3), x, g)
    torch.testing.assert_close(ops.rotate(back, start=3), g, rtol=1e-12, atol=1e-12)
