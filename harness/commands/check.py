"""What `check` does: the contract on any variant, in each state of its switches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness import arms, registry
from harness.contract import CLAIMS, Finding, Subject, examine, same_bits, switch_configs
from harness.contract.examine import DIMS
from harness.contract.subject import generator, told
from harness.errors import BackendError, UsageError, unknown
from harness.fields import settings, shown
from harness.registry import choose_backend

EQUALS = "equals"
"""Beside the claims of the contract: a switch that is off, or an identity, gives the arm that it names, bit for bit."""


@dataclass(frozen=True)
class Checked:
    """What became of a variant.

    Args:
        variant: as it was asked for.
        groups: findings by the state of its switches: the arm as asked, then each switch off, then all of them.
        seconds: taken.
    """

    variant: str
    groups: dict[str, list[Finding]]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether no claim is broken."""
        return not any(finding.passed is False for group in self.groups.values() for finding in group)

    def payload(self) -> dict[str, Any]:
        """As `--json` prints it; `passed` is null where a claim could not be tried."""
        checks = [
            {
                "name": finding.name if label == "default" else f"{finding.name} [{label}]",
                "backend": finding.backend,
                "passed": finding.passed,
                "detail": finding.detail,
            }
            for label, group in self.groups.items()
            for finding in group
        ]
        return {"variant": self.variant, "passed": self.passed, "checks": checks}


def check(names: Sequence[str], claims: Sequence[str], say: Callable[[str], None]) -> Iterator[Checked]:
    """Try the contract on variants, one after the other.

    Args:
        names: variants, arms of them, or paths; `all` is every shipped variant.
        claims: those to try; all unless given.
        say: told what is being tried.

    Raises:
        UsageError: a name or a claim that does not exist, or a file that is no variant; said before the first try.
    """
    for claim in claims:
        if claim not in (*CLAIMS, EQUALS):
            raise unknown("claim", claim, [*CLAIMS, EQUALS])
    asked = list(dict.fromkeys(name for word in names for name in (registry.shipped() if word == "all" else [word])))
    if not asked:
        raise UsageError("check: name a variant, a path to your own, or all")
    parsed = [arms.parse(name) for name in asked]
    return (_one(name, arm, claims or (*CLAIMS, EQUALS), say) for name, arm in zip(asked, parsed, strict=True))


def _one(name: str, arm: arms.Arm, claims: Sequence[str], say: Callable[[str], None]) -> Checked:
    clock, spec = time.monotonic(), arm.variant.spec
    pinned = arm.sections.get("train", {}).get("backend")
    contract = [claim for claim in claims if claim != EQUALS]
    groups: dict[str, list[Finding]] = {}
    configs, refusal = _configs(arm)
    for label, config in configs.items() if contract else ():
        say(f"{name} {label}" if label != "default" else name)
        backends = None if pinned is None else [pinned]
        groups[label] = examine(spec, config, backends=backends, claims=contract, doc=arm.variant.doc)
    groups.setdefault("default", []).extend(refusal)
    if EQUALS in claims:
        for left, right in _identities(name, arm):
            say(f"{left} = {right}")
            groups.setdefault(_inside(left), []).extend(_equal(left, right))
    return Checked(name, {label: group for label, group in groups.items() if group}, time.monotonic() - clock)


def _configs(arm: arms.Arm) -> tuple[dict[str, Any], list[Finding]]:
    try:
        return switch_configs(arm.variant.spec, arm.mixer), []
    except UsageError as error:
        return {"default": arm.mixer}, [Finding("config", "", False, f"a switch cannot be turned off: {error}")]


def _identities(name: str, arm: arms.Arm) -> list[tuple[str, str]]:
    """Arms of a variant that its file says equal another arm, with that one."""
    bare = name.partition("[")[0]
    known = settings(arm.variant.spec.Config).items()
    switches = [(f"{bare}[{field}={shown(s.role.off)}]", s.role.equals) for field, s in known if s.role.equals]
    declared = [
        (bare + left[len(left.partition("[")[0]) :], right) for left, right in arm.variant.spec.identities.items()
    ]
    return [*((left, right) for left, right in switches if right), *declared]


def _inside(text: str) -> str:
    return text.partition("[")[2].rstrip("]") or "default"


def _equal(left: str, right: str) -> list[Finding]:
    claim = f"{EQUALS} {right}"
    try:
        pair = (arms.parse(left), arms.parse(right))
        return [Finding(claim, backend[0], *_compared(pair, backend)) for backend in _shared(pair)]
    except (UsageError, BackendError) as error:
        return [Finding(claim, "", False, str(error))]


def _shared(pair: tuple[arms.Arm, arms.Arm]) -> list[tuple[str, str]]:
    """Backends that both have and that run here; where they share none, what each would train with."""

    def here(arm: arms.Arm) -> list[str]:
        found = arm.variant.spec.backends
        return [b.name for b in found if not b.refuses("cpu", "float32", dims=DIMS, config=arm.mixer)]

    both = [name for name in here(pair[0]) if name in here(pair[1])]
    if both:
        return [(name, name) for name in both]
    own, other = (
        choose_backend(arm.variant.spec, "auto", device="cpu", dtype="float32", dims=DIMS, config=arm.mixer)
        for arm in pair
    )
    return [(own, other)]


def _compared(pair: tuple[arms.Arm, arms.Arm], backends: tuple[str, str]) -> tuple[bool, str]:
    try:
        with torch.random.fork_rng(devices=[]):
            layers = [
                Subject(arm.variant.spec, arm.mixer, dims=DIMS, backend=backend).layer.last
                for arm, backend in zip(pair, backends, strict=True)
            ]
            x = torch.randn(2, 70, DIMS.model_dim, generator=generator("equals"))
            differs = same_bits(layers[0], layers[1], x)
    # A user's layer may fail in any way it likes: that is a broken claim.
    except Exception as error:
        return False, f"raises {told(error)}"
    return not differs, differs
