"""The layer of stick-breaking: where the rest of the stick goes, groups of heads, and where its kernel is refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from harness import ops
from harness.contract import examine
from harness.contract.examine import DIMS
from harness.contract.subject import generator
from harness.spec import Dims
from variants.stick_breaking import SPEC, Config, reference


def layer(**fields: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return SPEC.Layer(DIMS, Config(**fields), layer_index=0, core=reference)


def test_each_policy_puts_the_rest_of_the_stick_where_it_says() -> None:
    x = torch.randn(2, 9, DIMS.model_dim, generator=generator("x"))
    dropped = layer()
    given_back = dropped.inputs(x, {})
    out, rest = reference(**given_back)
    torch.testing.assert_close(dropped(x, {}), dropped.o(out.flatten(-2)))
    value = layer(remainder="value", kv_heads=1)
    arguments = value.inputs(x, {})
    mixed, left = reference(**arguments)
    want = mixed + left[..., None] * ops.repeat_heads(arguments["v"], DIMS.num_heads)
    torch.testing.assert_close(value(x, {}), value.o(want.flatten(-2)))
    torch.testing.assert_close(want[:, 0], ops.repeat_heads(arguments["v"], DIMS.num_heads)[:, 0])
    biased = layer(remainder="head_bias")
    assert sorted(set(dict(biased.named_parameters())) - set(dict(dropped.named_parameters()))) == [
        "head_bias",
        "head_norm.bias",
        "head_norm.weight",
    ]
    assert not bool(biased.head_bias.any())
    with torch.no_grad():
        biased.head_bias.normal_()
    normed = F.layer_norm(out + rest[..., None] * biased.head_bias, (DIMS.head_dim,))
    torch.testing.assert_close(biased(x, {}), biased.o(normed.flatten(-2)))


def test_fla_is_refused_where_it_cannot_run_with_the_reason() -> None:
    backend = SPEC.backend("fla")
    assert backend.refuses("cpu", "bfloat16") == "runs on cuda, not on cpu"
    assert backend.refuses("cuda", "float32") == "takes bfloat16, not float32"
    wide = Dims(model_dim=1024, num_heads=2, num_layers=1, length=8)
    assert "256 channels, not 512" in str(backend.refuses("cuda", "bfloat16", dims=wide, config=Config()))


@pytest.mark.parametrize(
    "fields",
    [
        {"kv_heads": 1, "attend_current": True, "positions": "rope"},
        {"kv_heads": 1, "remainder": "head_bias"},
        {"attend_current": True, "remainder": "value"},
    ],
    ids=str,
)
def test_groups_and_policies_keep_the_contract(fields: dict[str, object]) -> None:
    assert [finding for finding in examine(SPEC, Config(**fields)) if finding.passed is False] == []
