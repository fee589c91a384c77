"""Mamba: a state space model whose step, input and readout depend on the token.

    [x; z] = in_proj(input),  u = silu(conv(x))               conv: causal, over a few tokens of each channel
    [r; B; C] = x_proj(u),    delta = softplus(dt_proj(r) + dt_bias)
    h_t = exp(delta_t A) h_{t-1} + delta_t u_t B_t            A = -exp(A_log); h is E channels x N states
    y_t = C_t . h_t + D u_t,  output = out_proj(y * silu(z))

B enters as delta B (Euler), not by the exact integral of the step.

Source: arXiv 2312.00752, algorithm 2 and figure 3, and its authors' code. Time O(T E N), state O(E N).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness import ops
from harness.ops import costs
from harness.ops.scan import mamba_ssm, mamba_ssm_probe, scan_in_blocks
from harness.spec import Backend, Cost, Dims, MixerSpec, Reason, Work, knob, size, switch

SMALLEST_STEP = 1e-4
KERNEL_STATES = 256


@dataclass(frozen=True, kw_only=True)
class Config:
    """Fields of `mamba`.

    Args:
        conv: the short convolution before the scan.
        gate: the factor silu(z) after the scan.
        skip: the term D u past the scan.
        selective_delta, selective_b, selective_c: the token decides its step, where it writes, what it reads.
        expand: inner channels for each channel of the model, E / M.
        state: states of a channel, N.
        conv_width: tokens of the convolution, its own included.
        dt_min, dt_max: steps delta at the start, log-uniform between the two.
    """

    conv: bool = switch(True, off=False, removes="the short convolution; its SiLU stays")
    gate: bool = switch(True, off=False, removes="the gate silu(z) and its projection")
    skip: bool = switch(True, off=False, removes="the path D u around the state")
    selective_delta: bool = switch(True, off=False, removes="the token's say in delta, now constant in time")
    selective_b: bool = switch(True, off=False, removes="the token's say in B, now constant in time")
    selective_c: bool = switch(True, off=False, removes="the token's say in C, now constant in time")
    expand: int = size(2, least=1)
    state: int = size(16, least=1)
    conv_width: int = size(4, least=1)
    dt_min: float = knob(1e-3, low=1e-4, high=1e-2, log=True, above=0)
    dt_max: float = knob(1e-1, low=2e-2, high=1.0, log=True, above=0)

    def __post_init__(self) -> None:
        if self.dt_min > self.dt_max:
            raise ValueError(f"dt_min={self.dt_min:g} is above dt_max={self.dt_max:g}")


def reference(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None) -> Tensor:
    """The selective scan term by term; float64 stays float64, all else is computed in float32.

    Args:
        u: what is written into the state, [B, T, E].
        delta: steps, positive (after the softplus), [B, T, E].
        A: rates of decay, negative, [E, N].
        B: where it is written, [B, T, N].
        C: how the state is read, [B, T, N].
        D: share of u that goes past the state, [E]. None is no such path.

    Returns:
        [B, T, E], in the dtype of u.
    """
    wide = ops.at_least_float32(u).dtype
    state = torch.zeros(u.shape[0], *A.shape, dtype=wide, device=u.device)  # [B, E, N]
    out = []
    for token in range(u.shape[1]):
        state, y = advance(state, u[:, token], delta[:, token], A, B[:, token], C[:, token], D)
        out.append(y)
    return torch.stack(out, dim=1).to(u.dtype)


def advance(
    state: Tensor, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One token of the scan, in the dtype of the state.

    Args:
        state: [B, E, N].
        u, delta: [B, E].
        A: [E, N].
        B, C: [B, N].
        D: [E], or none.

    Returns:
        The new state [B, E, N] and the output [B, E].
    """
    u, delta, A, B, C = (x.to(state.dtype) for x in (u, delta, A, B, C))
    state = torch.exp(delta[:, :, None] * A) * state + (delta * u)[:, :, None] * B[:, None, :]
    y = (state * C[:, None, :]).sum(-1)
    return state, y if D is None else y + D.to(state.dtype) * u


class State(NamedTuple):
    """What the layer keeps while it decodes.

    Args:
        scan: [B, E, N], float32 or wider.
        inputs: the last inputs of the convolution, [B, conv_width - 1, E]; without it [B, 0, E].
    """

    scan: Tensor
    inputs: Tensor


class Layer(nn.Module):
    """The Mamba block around the scan; what has its own start is float32 and outside weight decay."""

    undecayed = ("A_log", "B", "C", "D", "conv.bias", "conv.weight", "dt_bias", "dt_proj.weight")

    def __init__(self, dims: Dims, config: Config, *, layer_index: int, core: Callable[..., Any]) -> None:
        super().__init__()
        self.config: Config = config
        self.core = core
        inner, rank = config.expand * dims.model_dim, math.ceil(dims.model_dim / 16)
        self.sizes = {
            "delta": rank * config.selective_delta,
            "B": config.state * config.selective_b,
            "C": config.state * config.selective_c,
        }
        parts = sum(self.sizes.values())
        self.in_proj = nn.Linear(dims.model_dim, inner * (1 + config.gate), bias=False)
        self.conv = nn.Conv1d(inner, inner, config.conv_width, groups=inner) if config.conv else None
        self.x_proj = nn.Linear(inner, parts, bias=False) if parts else None
        self.dt_proj = nn.Linear(rank, inner, bias=False) if config.selective_delta else None
        self.dt_bias = nn.Parameter(start_of_steps(inner, config))
        rates = torch.arange(1, config.state + 1, dtype=torch.float32)
        self.A_log = nn.Parameter(rates.log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner)) if config.skip else None
        self.B = None if config.selective_b else nn.Parameter(torch.ones(config.state))
        self.C = None if config.selective_c else nn.Parameter(torch.randn(config.state))
        self.out_proj = nn.Linear(inner, dims.model_dim, bias=False)

    def draw(self, name: str, parameter: Tensor, generator: torch.Generator) -> Tensor | None:
        """Start of the steps; the convolution is left to torch's rule, other matrices to the model's."""
        if name == "dt_bias":
            return start_of_steps(len(parameter), self.config, generator)
        if name == "dt_proj.weight":
            share = torch.rand(parameter.shape, generator=generator, dtype=torch.float32)
            return (2 * share - 1) / math.sqrt(parameter.shape[1])
        if name == "C":
            return torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
        return None

    def split(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """What enters the convolution and the gate z, [B, T, E] each, from x [B, T, M]."""
        if not self.config.gate:
            return self.in_proj(x), None
        inputs, gate = self.in_proj(x).chunk(2, dim=-1)
        return inputs, gate

    def convolve(self, inputs: Tensor) -> Tensor:
        """u [B, T, E] from the inputs of T + conv_width - 1 tokens."""
        if self.conv is None:
            return F.silu(inputs)
        # An image of height 1 with channels last: no copy, and twice the speed of conv1d.
        image = inputs.transpose(1, 2).unsqueeze(2).contiguous(memory_format=torch.channels_last)
        weight = self.conv.weight.unsqueeze(2)
        return F.silu(F.conv2d(image, weight, self.conv.bias, groups=len(weight)).squeeze(2).transpose(1, 2))

    @property
    def reach(self) -> int:
        """Earlier tokens the convolution sees."""
        return self.config.conv_width - 1 if self.config.conv else 0

    def arguments(self, u: Tensor) -> dict[str, Any]:
        """The arguments of `reference` for u [B, T, E]."""
        parts: dict[str, Tensor] = {}
        if self.x_proj is not None:
            parts |= zip(self.sizes, self.x_proj(u).split(list(self.sizes.values()), dim=-1), strict=True)
        step: Tensor = self.dt_bias
        if self.dt_proj is not None:
            step = ops.at_least_float32(self.dt_proj(parts["delta"])) + step
        B = parts["B"] if self.B is None else self.B
        C = parts["C"] if self.C is None else self.C
        delta, B, C = (x.expand(*u.shape[:2], -1) for x in (F.softplus(step), B, C))
        return {"u": u, "delta": delta, "A": -torch.exp(self.A_log), "B": B, "C": C, "D": self.D}

    def finish(self, y: Tensor, gate: Tensor | None) -> Tensor:
        """[B, T, M] from the scan's output and the gate, [B, T, E]."""
        out: Tensor = self.out_proj(y if gate is None else y * F.silu(gate))
        return out

    def inputs(self, x: Tensor, shared: dict[str, Any]) -> dict[str, Any]:
        """The arguments of `reference` for x [B, T, M]."""
        return self.arguments(self.convolve(F.pad(self.split(x)[0], (0, 0, self.reach, 0))))

    def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
        """[B, T, M] to [B, T, M]."""
        inputs, gate = self.split(x)
        arguments = self.arguments(self.convolve(F.pad(inputs, (0, 0, self.reach, 0))))
        # Autocast would round the states that the core keeps in float32 on purpose.
        with torch.autocast(x.device.type, enabled=False):
            y = self.core(**arguments)
        return self.finish(y, gate)

    def step(self, x: Tensor, state: State | None, shared: dict[str, Any]) -> tuple[Tensor, State]:
        """One token: x [B, 1, M] and the state after those before it (None at the start)."""
        inputs, gate = self.split(x)
        before = inputs.new_zeros(len(x), self.reach, inputs.shape[-1]) if state is None else state.inputs
        seen = torch.cat([before, inputs], dim=1)
        arguments = self.arguments(self.convolve(seen))
        A, D = arguments.pop("A"), arguments.pop("D")
        scan = A.new_zeros(len(x), *A.shape) if state is None else state.scan
        with torch.autocast(x.device.type, enabled=False):
            scan, y = advance(scan, A=A, D=D, **{name: value[:, 0] for name, value in arguments.items()})
        return self.finish(y[:, None].to(inputs.dtype), gate), State(scan, seen[:, 1:])


def start_of_steps(channels: int, config: Config, generator: torch.Generator | None = None) -> Tensor:
    """b with softplus(b) log-uniform between `dt_min` and `dt_max`, never under 1e-4: [E], float32."""
    low, high = math.log(config.dt_min), math.log(config.dt_max)
    step = torch.exp(low + (high - low) * torch.rand(channels, generator=generator, dtype=torch.float32))
    step = step.clamp(min=SMALLEST_STEP)
    return step + torch.log(-torch.expm1(-step))


def _few_states(dims: Dims, config: Config) -> Reason:
    if config.state > KERNEL_STATES:
        return f"takes at most {KERNEL_STATES} states, not {config.state}"
    return None


def cost(dims: Dims, config: Config, length: int) -> Cost:
    """Projections and convolution; seven operations for each state of a token and what each channel adds."""
    width, states, rank = dims.model_dim, config.state, math.ceil(dims.model_dim / 16)
    inner = config.expand * width
    parts = rank * config.selective_delta + states * (config.selective_b + config.selective_c)
    matrices = width * inner * (2 + config.gate) + inner * (parts + rank * config.selective_delta)
    taps = config.conv_width * config.conv
    token = costs.SILU + config.conv + (1 + costs.SOFTPLUS) * config.selective_delta + 1
    token += 2 * config.skip + (costs.SILU + 1) * config.gate
    work = Work(products=2.0 * (matrices + inner * taps), elementwise=inner * (7.0 * states + token))
    constant = states * ((not config.selective_b) + (not config.selective_c))
    return Cost(
        forward=work,
        decode=work,
        state_bytes=costs.FLOAT32 * inner * (states + max(taps - 1, 0)),
        parameters=matrices + inner * (taps + config.conv + 1 + states + config.skip) + constant,
    )


SPEC = MixerSpec(
    name="mamba",
    Config=Config,
    Layer=Layer,
    source="arXiv 2312.00752, algorithm 2",
    reference=reference,
    linear_in="u",
    backends=(
        Backend(
            name="mamba_ssm",
            run=mamba_ssm,
            forward=("cuda",),
            backward=("cuda",),
            probe=mamba_ssm_probe,
            supports=_few_states,
        ),
        Backend(name="blocks", run=scan_in_blocks),
        Backend(name="reference", run=reference),
    ),
    cost=cost,
    state_knob="state",
    checks_past=lambda config: config.conv_width,
)
