"""Every claim on one mixer, and the configs it has to keep them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from harness.contract import causal, core, declared, flow, passes, priced
from harness.contract.finding import Absent, Broken, Finding
from harness.contract.subject import Subject, told
from harness.errors import BackendError, UsageError, unknown
from harness.fields import build, resolved, settings, shown
from harness.spec import Dims, MixerSpec

CLAIMS: dict[str, Callable[[Subject], str]] = {
    "docstring": declared.docstring,
    "config": declared.config,
    "untouched": passes.untouched,
    "shape": passes.shape,
    "deterministic": passes.deterministic,
    "dtype": passes.dtype,
    "strides": passes.strides,
    "batch": flow.batch,
    "causal": causal.causal,
    "step": flow.step,
    "inputs": core.inputs,
    "values": core.values,
    "gradients": core.gradients,
    "strided gradients": core.strides,
    "slope": core.slope,
    "bfloat16": core.bfloat16,
    "trained": passes.trained,
    "cost": priced.cost,
}
_WITHOUT_BACKEND = ("docstring", "config", "cost")
# Where one of these is broken, the claims that need it would only repeat it under a wrong name.
_FIRST = ("untouched", "shape", "deterministic")
_NEEDS: dict[str, tuple[str, ...]] = {
    "docstring": (),
    "config": (),
    "causal": (*_FIRST, "batch"),
    **{name: _FIRST[:place] for place, name in enumerate(_FIRST)},
}
DIMS = Dims(model_dim=32, num_heads=4, num_layers=2, length=128)


def examine(
    spec: MixerSpec,
    config: Any,
    *,
    dims: Dims | None = None,
    backends: Sequence[str] | None = None,
    claims: Sequence[str] | None = None,
    seed: int = 0,
    device: str = "cpu",
    doc: str = "",
) -> list[Finding]:
    """Try every claim of the contract on a mixer, through each of its backends that runs here.

    Args:
        spec, config: the mixer.
        dims: the model around it; small ones unless given.
        backends: names of those to try; all unless given, those that refuse here with their reason.
        claims: names of those to try; all of `CLAIMS` unless given.
        seed: of parameters and inputs.
        device: kind of device.
        doc: docstring of the mixer's file; that of the config's module unless given.

    Returns:
        One finding for each claim and backend.

    Raises:
        UsageError: no claim or backend of that name.
        BackendError: a backend asked for by name refuses.
    """
    for name in claims or ():
        if name not in CLAIMS:
            raise unknown("claim", name, CLAIMS)
    dims = dims or DIMS
    findings = []
    usable, refused = _backends(spec, config, dims, backends, device)
    findings += refused
    for backend in usable:
        subject = Subject(spec, config, dims=dims, backend=backend, seed=seed, device=device, doc=doc)
        findings += _all_claims(subject, claims or tuple(CLAIMS))
    # What has nothing to do with a backend was found once for each.
    return list(dict.fromkeys(findings))


def _all_claims(subject: Subject, claims: Sequence[str]) -> list[Finding]:
    wanted = {*claims, *(needed for name in claims for needed in _NEEDS.get(name, _FIRST))}
    findings: dict[str, Finding] = {}
    for name in CLAIMS:
        needed = [other for other in _NEEDS.get(name, _FIRST) if other in findings and findings[other].passed is False]
        if needed:
            findings[name] = Finding(name, subject.backend, None, f"`{needed[0]}` is broken")
        elif name in wanted:
            findings[name] = hold(name, subject)
    # What kept a claim from being tried is broken, whether it was asked for or not.
    return [finding for name, finding in findings.items() if name in claims or finding.passed is False]


def hold(name: str, subject: Subject) -> Finding:
    """Try one claim.

    Args:
        name: a key of `CLAIMS`.
        subject: the mixer and its backend.

    Returns:
        What became of it; an exception of the mixer is a broken claim.
    """
    backend = "" if name in _WITHOUT_BACKEND else subject.backend
    try:
        with torch.random.fork_rng(devices=[]):
            return Finding(name, backend, True, CLAIMS[name](subject))
    except Absent as reason:
        return Finding(name, backend, None, str(reason))
    except Broken as error:
        return Finding(name, backend, False, str(error))
    # A mixer that leaves, by SystemExit, is one that fails: its check is not to end as if all were well.
    except (Exception, SystemExit, GeneratorExit) as error:
        return Finding(name, backend, False, f"raises {told(error)}")


def _backends(
    spec: MixerSpec, config: Any, dims: Dims, asked: Sequence[str] | None, device: str
) -> tuple[list[str], list[Finding]]:
    names = [backend.name for backend in spec.backends]
    for name in asked or ():
        if name not in (names or ["own"]):
            raise unknown(f"backend of {spec.name}", name, names or ["own"])
    usable, refused = [], []
    for backend in spec.backends:
        if asked is None or backend.name in asked:
            dtype = "float32" if "float32" in backend.dtypes else "bfloat16"
            reason = backend.refuses(device, dtype, dims=dims, config=config)
            if reason and asked is not None:
                raise BackendError(f"{spec.name} through {backend.name}: {reason}")
            if reason:
                refused.append(Finding("backend", backend.name, None, reason))
            else:
                usable.append(backend.name)
    return (usable, refused) if names else (["own"], [])


def switch_configs(spec: MixerSpec, config: Any = None) -> dict[str, Any]:
    """A config, then each of its switches off in turn, then all of them off.

    Args:
        spec: the mixer.
        config: where to start; its defaults unless given.

    Returns:
        Configs by label: `default`, `elastic=off`, …, `all off`.
    """
    base = spec.Config() if config is None else config
    off = {
        name: setting.role.off
        for name, setting in settings(spec.Config).items()
        if setting.role.kind == "switch" and getattr(base, name) != setting.role.off
    }
    found = {"default": base}
    found |= {f"{name}={shown(value)}": _with(spec, base, {name: value}) for name, value in off.items()}
    return {**found, "all off": _with(spec, base, off)} if len(off) > 1 else found


def option_configs(spec: MixerSpec, config: Any = None) -> dict[str, Any]:
    """Each other option of each `choice`, one at a time, less those that the config refuses: by label, `tau=fixed`."""
    base = spec.Config() if config is None else config
    found = {}
    for name, setting in settings(spec.Config).items():
        for option in setting.role.options if setting.role.kind == "choice" else ():
            if option != getattr(base, name):
                with suppress(UsageError):
                    found[f"{name}={shown(option)}"] = _with(spec, base, {name: option})
    return found


def _with(spec: MixerSpec, base: Any, values: dict[str, Any]) -> Any:
    return build(spec.Config, {**resolved(base), **values}, where=spec.name)


def same_bits(left: nn.Module, right: nn.Module, x: torch.Tensor) -> str:
    """Whether two layers compute the same, output and every gradient, to the bit.

    Args:
        left: a layer, `forward(x, shared)`.
        right: another; parameters of the same name are set to those of the first.
        x: [B, T, M].

    Returns:
        Nothing where they agree, else what differs first.
    """
    right.load_state_dict(left.state_dict(), strict=False)
    outcomes = []
    for layer in (left, right):
        at = x.detach().clone().requires_grad_()
        y = layer(at, {})
        named = dict(layer.named_parameters())
        found = torch.autograd.grad(y.square().sum(), [at, *named.values()], allow_unused=True)
        outcomes.append(
            {
                "the output": y.detach(),
                "the gradient of x": found[0],
                **{f"the gradient of {name}": g for name, g in zip(named, found[1:], strict=True)},
            }
        )
    for name, value in outcomes[0].items():
        other = outcomes[1].get(name)
        if value is not None and other is not None and not torch.equal(value, other):
            return f"{name} differs by up to {float((value - other).abs().max()):.3g}"
    return ""
