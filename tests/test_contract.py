"""Every shipped variant keeps the contract: each backend that runs here, each switch off, each option."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import registry
from harness.contract import CLAIMS, Finding, Subject, examine, option_configs, same_bits, switch_configs
from harness.contract.examine import DIMS
from harness.contract.subject import generator, lengths
from harness.errors import BackendError, UsageError
from harness.fields import settings

CASES = [
    (name, label, config)
    for name, variant in registry.shipped().items()
    for label, config in {**switch_configs(variant.spec), **option_configs(variant.spec)}.items()
]
NOT_GIVEN = ("runs on ", "has no ", "takes ")


def identities() -> list[tuple[str, str]]:
    """Each arm that a variant says computes another arm, and that other arm."""
    found = []
    for name, variant in registry.shipped().items():
        found += list(variant.spec.identities.items())
        for field, setting in settings(variant.spec.Config).items():
            if setting.role.equals:
                found.append((f"{name}[{field}=off]", setting.role.equals))
    return found


def layer(arm: str, backend: str) -> torch.nn.Module:
    """The layer of an arm as the command line writes it."""
    name, _, fields = arm.partition("[")
    variant = registry.find(name)
    values = dict(pair.split("=") for pair in re.findall(r"[^,\[\]]+=[^,\[\]]+", fields))
    config = registry.configure(variant, {**variant.pinned, **values})
    return Subject(variant.spec, config, dims=DIMS, backend=backend).layer.last


@pytest.mark.parametrize(("name", "label", "config"), CASES, ids=[f"{name} {label}" for name, label, _ in CASES])
def test_every_variant_keeps_every_claim(name: str, label: str, config: Any) -> None:
    findings = examine(registry.find(name).spec, config)
    assert [finding for finding in findings if finding.passed is False] == []
    for finding in findings:
        # A backend that does not serve a config is a row of its own, named `backend`.
        assert finding.passed or finding.name == "backend" or finding.detail.startswith(NOT_GIVEN), finding
    tried = {finding.name for finding in findings if finding.passed}
    assert tried == set(CLAIMS)


@pytest.mark.parametrize(("arm", "other"), identities())
def test_an_arm_that_names_another_computes_it_to_the_bit(arm: str, other: str) -> None:
    one, two = (
        {b.name for b in registry.find(name.partition("[")[0]).spec.backends if not b.refuses("cpu", "float32")}
        for name in (arm, other)
    )
    for backend in one & two:
        mine, theirs = layer(arm, backend), layer(other, backend)
        x = torch.randn(2, 70, DIMS.model_dim, generator=generator("x"))
        assert same_bits(mine, theirs, x) == "", backend
        assert sorted(name for name, _ in mine.named_parameters()) == sorted(n for n, _ in theirs.named_parameters())


def test_lengths_go_past_any_window() -> None:
    assert lengths(0) == (1, 7, 63, 130)
    assert lengths(64) == (1, 7, 63, 130)
    assert lengths(100) == (1, 7, 63, 130, 166)


def test_switches_go_off_one_by_one_and_all_at_once() -> None:
    spec = registry.find("lazy").spec
    configs = switch_configs(spec)
    assert list(configs) == ["default", "bias=off", "elastic=off", "rope=off", "all off"]
    assert (configs["all off"].bias, configs["all off"].elastic, configs["all off"].rope) == (False, False, False)
    assert list(switch_configs(spec, configs["bias=off"])) == ["default", "elastic=off", "rope=off", "all off"]


def test_claims_and_backends_can_be_picked_and_a_wrong_name_says_so() -> None:
    spec = registry.find("softmax").spec
    found = examine(spec, spec.Config(), backends=["sdpa"], claims=["causal", "config"])
    assert found == [
        Finding("config", "", True, ""),
        Finding("causal", "sdpa", True, "lengths 1, 7, 63, 130, 259; both modes"),
    ]
    with pytest.raises(UsageError, match="did you mean 'causal'"):
        examine(spec, spec.Config(), claims=["casual"])
    with pytest.raises(UsageError, match="backend of softmax"):
        examine(spec, spec.Config(), backends=["spda"])
    with pytest.raises(BackendError, match="flash_attn: runs on cuda"):
        examine(spec, spec.Config(), backends=["flash_attn"])


def test_examining_leaves_the_random_state_and_gives_the_same_findings_again() -> None:
    spec = registry.find("lazy").spec
    state = torch.get_rng_state()
    first = examine(spec, spec.Config())
    assert torch.equal(torch.get_rng_state(), state)
    assert examine(spec, spec.Config()) == first


def test_the_contract_bites_under_optimised_python() -> None:
    code = (
        "from tests.planted import SPECS\n"
        "from harness.contract import examine\n"
        "spec = SPECS['peeks at the next token']\n"
        "print([f.passed for f in examine(spec, spec.Config(), claims=['causal', 'values'])])\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-O", "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stdout == "[False, True]\n", done.stderr


def test_every_claim_says_in_its_docstring_what_it_claims() -> None:
    assert all(claim.__doc__ and "\n" not in claim.__doc__ for claim in CLAIMS.values())
