"""Lazy Attention: the closed forms of Elastic-Softmax, the table over distance, and where both must not break."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness import ops, registry
from harness.contract import Subject, examine
from harness.contract.examine import DIMS
from harness.contract.subject import generator
from harness.errors import UsageError
from variants import softmax
from variants.lazy import SPEC, Config, elastic, reference

HEADS, DEPTH = 4, 6
PHI = NormalDist().cdf


def randn(*shape: int, key: str = "") -> Tensor:
    return torch.randn(shape, generator=generator(shape, key), dtype=torch.float64)


def inputs(queries: int, keys: int, groups: int = HEADS) -> list[Tensor]:
    """q, k, v in float64."""
    return [randn(2, queries, HEADS, DEPTH, key="q"), *(randn(2, keys, groups, DEPTH, key=key) for key in "kv")]


def per_head(*values: float) -> Tensor:
    """A threshold for each head; the last one given repeats."""
    return torch.tensor([*values, *[values[-1]] * (HEADS - len(values))], dtype=torch.float64)


def weights(scores: Tensor, tau: Tensor, **options: bool) -> Tensor:
    """Elastic-Softmax of causal scores [B, H, T, S]."""
    seen = ops.visible(scores.shape[2], scores.shape[3])
    options = {"divide_by_n": True, "renormalise": False, **options}
    return elastic(ops.softmax_weights(scores, seen), tau, seen, **options)


def test_no_threshold_and_no_bias_is_softmax_to_the_bit() -> None:
    q, k, v = inputs(7, 9, 2)
    for options in ({}, {"tau": per_head(0.0)}, {"bias": torch.zeros(HEADS, 3, dtype=torch.float64)}):
        assert torch.equal(reference(q, k, v, **options), softmax.reference(q, k, v))


def test_reference_is_the_formula_written_with_loops() -> None:
    q, k, v = inputs(3, 5, 2)
    bias, tau = randn(HEADS, 2, key="bias"), per_head(-1.0, -0.4, 0.3, -2.0)
    out = reference(q, k, v, bias=bias, tau=tau)
    for head in range(HEADS):
        for t in range(3):
            n = 5 - 3 + t + 1
            score = [float(q[0, t, head] @ k[0, j, head // 2]) / math.sqrt(DEPTH) for j in range(n)]
            score = [s + (float(bias[head, n - 1 - j]) if n - 1 - j < 2 else 0.0) for j, s in enumerate(score)]
            total = sum(math.exp(s) for s in score)
            kept = [max(0.0, math.exp(s) / total + float(tau[head]) / n) for s in score]
            expected = sum(a * v[0, j, head // 2] for j, a in enumerate(kept))
            torch.testing.assert_close(out[0, t, head], torch.as_tensor(expected, dtype=torch.float64).expand(DEPTH))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_minus_one_the_first_position_is_exactly_zero_without_gradient(dtype: torch.dtype) -> None:
    q, k, v = (x.to(dtype).requires_grad_() for x in inputs(6, 6))
    bias, tau = randn(HEADS, 4).to(dtype).requires_grad_(), per_head(-1.0).to(dtype).requires_grad_()
    out = reference(q, k, v, bias=bias, tau=tau)
    assert not bool(out[:, 0].any())
    for gradient in torch.autograd.grad(out[:, 0].sum(), (q, k, v, bias, tau)):
        assert not bool(gradient.any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau", [-1.0, -1.3])
def test_uniform_rows_are_dead_and_their_gradients_finite(dtype: torch.dtype, tau: float) -> None:
    for renormalise in (False, True):
        q, k, v = (x.to(dtype) for x in inputs(9, 9))
        q, v = torch.zeros_like(q).requires_grad_(), v.requires_grad_()
        threshold = per_head(tau).to(dtype).requires_grad_()
        out = reference(q, k, v, tau=threshold, renormalise=renormalise)
        assert not bool(out.any())
        for gradient in torch.autograd.grad(out.sum(), (q, v, threshold)):
            assert not bool(gradient.any())


@given(seed=st.integers(0, 1000), tau=st.floats(-2.0, 1.0), size=st.sampled_from([0.05, 1.0, 5.0]))
@settings(max_examples=60)
def test_a_row_holds_at_most_one_and_exactly_one_plus_tau_above_zero(seed: int, tau: float, size: float) -> None:
    scores = torch.randn(1, 1, 12, 12, generator=generator(seed), dtype=torch.float64) * size
    kept = weights(scores, torch.tensor([tau], dtype=torch.float64))
    mass = kept.sum(-1)
    assert bool((kept >= 0).all())
    if tau <= 0:
        assert float(mass.max()) <= 1 + 1e-12
    else:
        torch.testing.assert_close(mass, torch.full_like(mass, 1 + tau))
    torch.testing.assert_close(mass[..., 0], torch.full_like(mass[..., 0], max(0.0, 1 + tau)))


@pytest.mark.parametrize("std", [0.05, 0.485, 1.0, 2.0])
@pytest.mark.parametrize("tau", [-1.0, -0.5])
def test_gaussian_scores_have_the_zeros_and_the_mass_of_the_closed_form(std: float, tau: float) -> None:
    n = 200_000
    quantiles = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    scores = torch.special.ndtri(quantiles)[None, None, None] * std
    kept = weights(scores, torch.tensor([tau], dtype=torch.float64))
    d1 = (std**2 / 2 - math.log(-tau)) / std
    zeros, mass = 1 - PHI(d1 - std), PHI(d1) + tau * PHI(d1 - std)
    if tau == -1:
        assert (zeros, mass) == (pytest.approx(PHI(std / 2)), pytest.approx(2 * PHI(std / 2) - 1))
    assert float((kept == 0).double().mean()) == pytest.approx(zeros, abs=3e-3)
    assert float(kept.sum()) == pytest.approx(mass, abs=3e-3)


def test_with_tau_above_zero_hidden_keys_stay_hidden() -> None:
    q, k, v = inputs(6, 6)
    changed = [torch.cat([x[:, :5], x[:, 5:] * -7], dim=1) for x in (k, v)]
    tau = per_head(0.5)
    assert torch.equal(reference(q, *changed, tau=tau)[:, :5], reference(q, k, v, tau=tau)[:, :5])


def test_tau_is_divided_by_the_keys_seen_also_with_a_cache() -> None:
    q, k, v = inputs(9, 9)
    bias, tau = randn(HEADS, 4), per_head(-1.0, -0.3, 0.4, -1.2)
    whole = reference(q, k, v, bias=bias, tau=tau)
    for last in (1, 4):
        torch.testing.assert_close(reference(q[:, -last:], k, v, bias=bias, tau=tau), whole[:, -last:])
    unlike = reference(q[:, -1:], k[:, -1:], v[:, -1:], bias=bias, tau=tau)
    assert float((unlike - whole[:, -1:]).abs().max()) > 0.05


def test_undivided_tau_is_the_same_cut_in_every_row() -> None:
    scores = randn(1, HEADS, 8, 8)
    tau = per_head(-0.1, -0.02, 0.1, -0.3)
    seen = ops.visible(8, 8)
    expected = (ops.softmax_weights(scores, seen) + tau[:, None, None]).clamp(min=0).masked_fill(~seen, 0.0)
    assert torch.equal(weights(scores, tau, divide_by_n=False), expected)


def test_renormalised_rows_sum_to_one_or_are_dead() -> None:
    mass = weights(randn(1, HEADS, 8, 8), per_head(-1.0, -3.0, 0.5), renormalise=True).sum(-1)
    assert bool(torch.isclose(mass[0, [2, 3]], torch.ones(2, 8, dtype=torch.float64)).all())
    dead = mass[0, :2] == 0
    assert bool((dead | torch.isclose(mass[0, :2], torch.ones((), dtype=torch.float64))).all())
    assert bool(dead[:, 0].all())
    assert not bool(dead[0, 4:].any())


def test_the_gradient_of_tau_is_the_sum_over_kept_keys_divided_by_n() -> None:
    scores, tau = randn(2, HEADS, 7, 7), per_head(-0.9, -0.4).requires_grad_()
    kept = weights(scores, tau)
    g = randn(*kept.shape, key="g")
    (found,) = torch.autograd.grad(kept, tau, g)
    n = torch.arange(1.0, 8.0, dtype=torch.float64)[:, None]
    torch.testing.assert_close(found, (g * (kept > 0) / n).sum((0, 2, 3)))


def test_keys_past_the_table_get_no_bias_and_stay_visible() -> None:
    q, k, v = inputs(9, 9)
    table = randn(HEADS, 3, key="bias")
    padded = torch.cat([table, torch.zeros(HEADS, 6, dtype=torch.float64)], dim=1)
    tau = per_head(-0.5)
    short = reference(q, k, v, bias=table, tau=tau)
    assert torch.equal(short, reference(q, k, v, bias=padded, tau=tau))
    clamped = torch.cat([table, table[:, -1:].expand(-1, 6)], dim=1)
    assert float((short - reference(q, k, v, bias=clamped, tau=tau)).abs().max()) > 0.01
    far = torch.autograd.grad(reference(q, k, v.requires_grad_(), bias=table)[:, 8].sum(), v)[0]
    assert bool((far[:, 0].abs() > 0).all())


def test_a_table_longer_than_the_sequence_is_cut() -> None:
    q, k, v = inputs(4, 4)
    table = randn(HEADS, 50)
    assert torch.equal(reference(q, k, v, bias=table), reference(q, k, v, bias=table[:, :4]))


@pytest.mark.parametrize("tau", [-1.0, 0.5])
def test_scores_of_400_stay_finite(tau: float) -> None:
    q, k, v = (x.float() for x in inputs(6, 6))
    leaves = [x.requires_grad_() for x in (torch.sign(q) * 400, torch.sign(k), v)]
    out = reference(*leaves, tau=per_head(tau).float())
    assert bool(torch.isfinite(out).all())
    assert all(bool(torch.isfinite(g).all()) for g in torch.autograd.grad(out.sum(), leaves))


@pytest.mark.parametrize("options", [{}, {"divide_by_n": False}, {"renormalise": True}], ids=str)
def test_gradients_are_right_head_by_head(options: dict[str, bool]) -> None:
    divided = options.get("divide_by_n", True)
    tau = per_head(-0.6, -0.3, 0.3, -0.45) if divided else per_head(-0.1, -0.05, 0.1, -0.15)
    leaves = [x.requires_grad_() for x in (*inputs(4, 5, 2), randn(HEADS, 3, key="bias"), tau)]
    for head in range(HEADS):

        def one(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, tau: Tensor, head: int = head) -> Tensor:
            return reference(q, k, v, bias=bias, tau=tau, **options)[:, :, head]

        assert torch.autograd.gradcheck(one, leaves)


def test_under_bfloat16_autocast_threshold_and_table_stay_float32() -> None:
    seen: dict[str, Tensor] = {}

    def core(q: Tensor, k: Tensor, v: Tensor, **arguments: Tensor) -> Tensor:
        seen.update(q=q, tau=arguments["tau"], bias=arguments["bias"])
        out = reference(q, k, v, **arguments)
        seen["reference"] = reference(q.float(), k.float(), v.float(), **arguments)
        seen["out"] = out
        return out

    layer = SPEC.Layer(DIMS, Config(bias_length=8), layer_index=0, core=core)
    # Scores this close to equal leave differences of weights that bfloat16 cannot hold.
    x = torch.randn(2, 64, DIMS.model_dim, generator=generator("x")) * 0.1
    with torch.autocast("cpu", torch.bfloat16):
        layer(x, {})
    assert (seen["q"].dtype, seen["tau"].dtype, seen["bias"].dtype) == (torch.bfloat16, torch.float32, torch.float32)
    late, wanted = seen["out"][:, 32:].float().detach(), seen["reference"][:, 32:].detach()
    assert float((late - wanted).abs().max() / wanted.abs().max()) < 4e-3


def test_threshold_and_table_start_as_published_and_outside_weight_decay() -> None:
    layer = SPEC.Layer(DIMS, Config(), layer_index=0, core=reference)
    assert torch.equal(layer.tau, torch.full((DIMS.num_heads,), -1.0))
    assert torch.equal(layer.bias, torch.zeros(DIMS.num_heads, 512))
    assert set(layer.undecayed) == {"tau", "bias"}
    drawn = layer.draw("bias", layer.bias, generator("draw"))
    assert not bool(drawn.any())
    wide = SPEC.Layer(DIMS, Config(bias_std=0.02), layer_index=0, core=reference)
    assert float(wide.draw("bias", wide.bias, generator("draw")).std()) == pytest.approx(0.02, rel=0.1)
    fixed = SPEC.Layer(DIMS, Config(tau="fixed", tau_start=-0.5), layer_index=0, core=reference)
    assert "tau" not in dict(fixed.named_parameters())
    assert fixed.tau.tolist() == [-0.5] * DIMS.num_heads


def test_a_cut_that_no_training_could_undo_is_refused() -> None:
    lazy = registry.find("lazy")
    with pytest.raises(UsageError, match="take tau_start above -1"):
        registry.configure(lazy, {"divide_by_n": False})
    registry.configure(lazy, {"divide_by_n": False, "tau_start": -0.01})
    registry.configure(lazy, {"divide_by_n": False, "elastic": False})


@pytest.mark.parametrize(
    "fields",
    [
        {"bias_length": 8, "kv_heads": 1},
        {"tau_start": 0.3},
        {"tau_start": -0.05, "divide_by_n": False},
        {"tau": "fixed", "tau_start": -0.5, "output_norm": True},
        {"elastic": False, "bias_length": 8, "kv_heads": 1},
    ],
    ids=str,
)
def test_short_tables_groups_and_other_thresholds_keep_the_contract(fields: dict[str, object]) -> None:
    found = examine(SPEC, Config(**fields))
    assert [finding for finding in found if finding.passed is False] == []
    assert any(finding.name == "causal" and finding.passed for finding in found)


def test_a_dead_layer_with_an_output_norm_has_finite_gradients() -> None:
    subject = Subject(SPEC, Config(output_norm=True, tau_start=-1.5), dims=DIMS, backend="reference")
    layer = subject.build(noise=0.0).last
    layer.q.weight.data.zero_()
    x = torch.randn(2, 9, DIMS.model_dim, generator=generator("x")).requires_grad_()
    y = layer(x, {})
    assert not bool(y.any())
    for gradient in torch.autograd.grad(y.sum(), [x, *layer.parameters()]):
        assert bool(torch.isfinite(gradient).all())
