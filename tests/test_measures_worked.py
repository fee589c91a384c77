from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.measures import collapse, focus, mass, redundancy, sink, sparsity
from harness.measures.block import Block
from harness.measures.finding import Finding, NotDefinedError
from harness.measures.inside import Inside
from harness.ops import softmax_weights, visible
from variants.lazy import elastic

PHI = NormalDist().cdf

# Two heads over four tokens, worked by hand. Row masses: head 0 is 1, 1, 1, 1; head 1 is 0, 1/2, 1/4, 0.
MAPS = torch.tensor(
    [
        [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.75, 0, 0.25, 0], [0.25, 0.25, 0.25, 0.25]],
        [[0, 0, 0, 0], [0.5, 0, 0, 0], [0, 0.25, 0, 0], [0, 0, 0, 0]],
    ],
    dtype=torch.float64,
)[None]


def found(measure: object, block: Block) -> Finding:
    stats = measure.reduce(block)  # type: ignore[attr-defined]
    return measure.summarise({name: value.double().numpy()[:, None] for name, value in stats.items()})  # type: ignore


def test_sink_of_a_case_worked_by_hand() -> None:
    values = found(sink, Block(MAPS)).values
    # alpha_1: head 0 (1 + 1/2 + 3/4 + 1/4) / 4 = 0.625; head 1 (1/2) / 4 = 0.125.
    assert values["alpha_1_mean"] == pytest.approx(0.375)
    assert values["sink_1_percent"] == 50
    # alpha_2: head 0 (1/2 + 1/4) / 3 = 0.25; head 1 1/12: nobody above 0.3.
    assert values["sink_first_keys_percent"] == [50, 0, 0, 0]
    assert values["sink_1_by_epsilon_percent"] == [100, 50, 50, 50]
    assert (values["sink_largest_percent"], values["sink_largest_key"]) == (50, 1)
    # Head 1 divided by its mass: row 2 all on key 1, row 3 all on key 2: alpha_1 = 1/4.
    assert values["alpha_1_proxy_mean"] == pytest.approx((0.625 + 0.25) / 2, abs=1e-6)
    assert values["first_token_mass_percent"] == pytest.approx(100 * ((0.5 + 0.75 + 0.25) / 3 + 1 / 3) / 2, abs=1e-5)


def test_a_weight_of_exactly_epsilon_is_no_sink() -> None:
    maps = torch.full((1, 1, 1, 1), 0.5, dtype=torch.float64)
    assert found(sink, Block(maps)).values["sink_1_by_epsilon_percent"] == [100, 100, 100, 0]


def test_a_sink_on_another_key_is_found_where_it_is() -> None:
    maps = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    maps[..., 2:, 2] = 1.0
    values = found(sink, Block(maps)).values
    assert values["sink_1_percent"] == 0
    assert (values["sink_largest_percent"], values["sink_largest_key"]) == (100, 3)


def test_queries_of_a_group_are_told_apart() -> None:
    members = torch.tensor([[False, True, False, True]])
    values = found(sink, Block(MAPS[:, :1], groups={"trigger": members, "other": ~members})).values
    assert values["first_weight_trigger_mean"] == pytest.approx((0.5 + 0.25) / 2)
    assert values["first_weight_other_mean"] == pytest.approx(0.75)  # query 1 sees nothing else, and does not count


def test_the_proxy_of_negative_weights_takes_their_size() -> None:
    maps = torch.tensor([[1.0, 0.0], [-3.0, 1.0]], dtype=torch.float64)[None, None]
    values = found(sink, Block(maps)).values
    assert values["alpha_1_mean"] == pytest.approx(-1.0)
    assert values["alpha_1_proxy_mean"] == pytest.approx((1 + 0.75) / 2, abs=1e-6)


def test_mass_of_a_case_worked_by_hand() -> None:
    result = found(mass, Block(MAPS))
    assert result.values["row_mass_mean"] == pytest.approx((4 + 0.75) / 8)
    assert result.values["dead_rows_percent"] == 100 * 2 / 8
    assert result.values["dead_heads_percent"] == 0
    assert result.values["mass_on_first_mean"] == pytest.approx((0.5 + 0.75 + 0.25 + 0.5) / 6)
    assert result.values["mass_off_first_mean"] == pytest.approx((0.5 + 0.25 + 0.75 + 0 + 0.25) / 6)
    assert result.arrays["mass"].tolist() == [[[1, 1, 1, 1], [0, 0.5, 0.25, 0]]]


def test_a_head_without_any_weight_is_dead_and_one_live_row_is_enough() -> None:
    maps = torch.zeros(2, 3, 4, 4)
    maps[1, 1, 3, 0] = 1e-30
    assert found(mass, Block(maps)).values["dead_heads_percent"] == pytest.approx(200 / 3)


def test_rows_whose_weights_cancel_are_not_dead() -> None:
    maps = torch.tensor([[1.0, 0.0], [-1.0, 1.0]])[None, None]
    values = found(mass, Block(maps)).values
    assert values["dead_rows_percent"] == 0 and values["row_mass_mean"] == 0.5


def test_sparsity_counts_causal_pairs_alone() -> None:
    # Ten causal pairs each: head 0 has one zero among them (row 3), head 1 has eight.
    assert found(sparsity, Block(MAPS)).values["zeros_percent"] == pytest.approx(100 * 9 / 20)


def test_only_blocks_that_are_zero_throughout_can_be_skipped() -> None:
    maps = torch.ones(1, 1, 128, 128).tril()
    maps[..., 64:, :32] = 0  # two blocks of 32 x 32 below the diagonal, half of one of 64 x 64
    values = found(sparsity, Block(maps)).values
    assert values["zero_blocks_32_percent"] == pytest.approx(100 * 2 / 10)
    assert values["zero_blocks_64_percent"] == 0
    maps[..., 64:, :64] = 0
    values = found(sparsity, Block(maps)).values
    assert values["zero_blocks_32_percent"] == pytest.approx(100 * 4 / 10)
    assert values["zero_blocks_64_percent"] == pytest.approx(100 / 3)


def test_focus_of_a_case_worked_by_hand() -> None:
    values = found(focus, Block(MAPS[:, :1])).values
    third = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert values["normalised_entropy_mean"] == pytest.approx((1 + third / math.log(3) + 1) / 3)
    assert values["effective_keys_mean"] == pytest.approx((2 + math.exp(third) + 4) / 3)
    assert values["distance_tokens_mean"] == pytest.approx((0.5 + 1.5 + 1.5) / 3)


def test_dead_rows_have_no_focus() -> None:
    values = found(focus, Block(MAPS[:, 1:])).values
    assert values["rows_counted_percent"] == pytest.approx(200 / 3)
    assert values["effective_keys_mean"] == 1 and values["distance_tokens_mean"] == 1
    silent = found(focus, Block(torch.zeros(1, 1, 4, 4))).values
    assert math.isnan(silent["normalised_entropy_mean"]) and silent["rows_counted_percent"] == 0


def test_redundancy_of_equal_and_of_disjoint_heads() -> None:
    one, other = torch.eye(4), torch.ones(4, 4).tril(-1)
    assert found(redundancy, Block(torch.stack([one, one])[None])).values["map_cosine_mean"] == pytest.approx(1)
    assert found(redundancy, Block(torch.stack([one, other])[None])).values["map_cosine_mean"] == pytest.approx(0)
    with pytest.raises(NotDefinedError, match="one head"):
        redundancy.reduce(Block(one[None, None]))


def flat(s: float, tau: float, tokens: int = 512) -> Block:
    """Elastic-Softmax over independent Gaussian scores."""
    scores = s * torch.randn(2, 2, tokens, tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    seen = visible(tokens, tokens)
    plain = softmax_weights(scores, seen)
    cut = elastic(plain, torch.full((2,), tau, dtype=torch.float64), seen, divide_by_n=True, renormalise=False)
    return Block(cut, plain)


@pytest.mark.parametrize("s", [0.05, 0.485, 1.0, 2.0])
def test_flat_attention_at_tau_minus_one_follows_its_closed_form(s: float) -> None:
    block = flat(s, -1.0)
    zeros = found(sparsity, block).values
    assert zeros["zeros_percent"] == pytest.approx(100 * PHI(s / 2), abs=1.0)
    assert zeros["plain_softmax_below_uniform_percent"] == pytest.approx(zeros["zeros_percent"], abs=0.3)
    assert zeros["score_spread"] == pytest.approx(s, rel=0.01)
    assert zeros["below_uniform_if_gaussian_percent"] == pytest.approx(100 * PHI(s / 2), abs=0.3)
    late = mass.reduce(block)["mass"][..., 256:]
    assert float(late.mean()) == pytest.approx(2 * PHI(s / 2) - 1, abs=0.02)


@pytest.mark.parametrize(("s", "tau"), [(1.0, -0.5), (2.0, -0.5), (1.0, -1.5)])
def test_flat_attention_at_other_thresholds_follows_its_closed_form(s: float, tau: float) -> None:
    block = flat(s, tau)
    late = block.weights[..., 256:, :]
    zeros = ((late == 0) & block.causal[256:]).sum((-1, -2)) / block.causal[256:].sum()
    assert float(zeros.mean()) == pytest.approx(sparsity.flat_zero_share(s, tau), abs=0.01)
    assert float(late.sum(-1).mean()) == pytest.approx(mass.flat_row_mass(s, tau), abs=0.02)


def test_the_closed_forms_are_those_of_the_paper_facts() -> None:
    for s in (0.05, 0.485, 1.0, 2.0):
        assert sparsity.flat_zero_share(s) == pytest.approx(PHI(s / 2), abs=1e-12)
        assert mass.flat_row_mass(s) == pytest.approx(2 * PHI(s / 2) - 1, abs=1e-12)
    assert sparsity.flat_zero_share(0.485) == pytest.approx(0.5958, abs=5e-4)  # the sparsity that was reported
    assert mass.flat_row_mass(0.05, -0.5) == pytest.approx(0.5, abs=1e-6)


def states(x: Tensor) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in collapse.reduce(Inside((x,), ())).items()}


def test_equal_tokens_have_collapsed_and_orthogonal_ones_have_not() -> None:
    same = states(torch.ones(1, 4, 8))
    assert same["residual"].item() == pytest.approx(0, abs=1e-12) and same["rank"].item() == pytest.approx(1, abs=1e-6)
    assert same["cosine"].item() == pytest.approx(1)
    apart = states(torch.eye(4)[None])
    assert apart["rank"].item() == pytest.approx(4) and apart["cosine"].item() == pytest.approx(0, abs=1e-12)
    # |X|^2 = 4, of which the mean token takes 4 * |1/4 (1,1,1,1)|^2 = 1.
    assert apart["residual"].item() == pytest.approx(math.sqrt(3 / 4))
    assert apart["cosine_centred"].item() == pytest.approx(-1 / 3)
