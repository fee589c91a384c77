"""Files that an outsider might bring: a sound mixer, and what can be wrong with it."""

from __future__ import annotations

from harness.contract.examine import DIMS

HEAD = '''"""Attention of an outsider.

    o_i = sum_{j<=i} softmax_j(q_i.k_j / sqrt(D)) v_j

Source: nowhere.
"""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from harness.spec import Backend, Cost, MixerSpec, Work, switch


@dataclass(frozen=True, kw_only=True)
class Config:
    gate: bool = switch(True, off=False, removes="the gate")


def attention(q, k, v):
    scores = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1])
    return torch.einsum("bhts,bshd->bthd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)


class Layer(nn.Module):
    def __init__(self, dims, config, *, layer_index, core):
        super().__init__()
        self.heads, self.core, self.gated = dims.num_heads, core or attention, config.gate
        self.qkv = nn.Linear(dims.model_dim, 3 * dims.model_dim, bias=False)
        self.o = nn.Linear(dims.model_dim, dims.model_dim, bias=False)

    def inputs(self, x, shared):
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.qkv(x).chunk(3, dim=-1))
        return {"q": q, "k": k, "v": v}

    def forward(self, x, shared):
        y = self.core(**self.inputs(x, shared)).flatten(-2)
        return self.o(y * x.sigmoid() if self.gated else y)

    def step(self, x, state, shared):
        new = self.inputs(x, shared)
        k, v = new["k"], new["v"]
        if state is not None:
            k, v = torch.cat([state[0], k], 1), torch.cat([state[1], v], 1)
        y = self.core(new["q"], k, v).flatten(-2)
        return self.o(y * x.sigmoid() if self.gated else y), (k, v)

'''
SPEC = 'SPEC = MixerSpec(name="mine", Config=Config, Layer=Layer{more})\n'
FULL = ', reference=attention, backends=(Backend(name="own_kernel", run={core}),)'

PEEKS = """
class Layer(Layer):
    def forward(self, x, shared):
        return super().forward(x, shared) + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1))
"""
LEAKS = """
class Layer(Layer):
    def forward(self, x, shared):
        y = super().forward(x, shared) + shared.get("mean", 0.0)
        shared["mean"] = 0.1 * x.mean(1, keepdim=True)
        return y
"""
DRIFTS = """
class Layer(Layer):
    def step(self, x, state, shared):
        y, (k, v) = super().step(x, state, shared)
        return y, (k, v * 1.0005)
"""
WRONG_GRADIENT = """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * (1 + 0.01 * (torch.arange(g.shape[-2]) == HEAD)).to(g)[:, None]


def kernel(q, k, v):
    return attention(q, Scaled.apply(k), v)
"""
WRONG_HEAD = """
def kernel(q, k, v):
    y = attention(q, k, v)
    return y * (1 + 0.001 * (torch.arange(y.shape[-2]) == HEAD)).to(y)[:, None]
"""
BATCH = """
class Layer(Layer):
    def forward(self, x, shared):
        return super().forward(x, shared) + 0.1 * x.mean(0, keepdim=True)
"""
ONLY_OFF = """
class Layer(Layer):
    def forward(self, x, shared):
        y = super().forward(x, shared)
        return y if self.gated else y + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1))
"""
PEEKS_IN_LARGE_BATCHES = """
class Layer(Layer):
    def forward(self, x, shared):
        y = super().forward(x, shared)
        return y + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1)) if len(x) > 16 else y
"""
PEEKS_ONCE = """
class Layer(Layer):
    def forward(self, x, shared):
        y = super().forward(x, shared)
        return y if x.shape[1] < 202 else torch.cat([y[:, :200], y[:, 200:201] + x[:, 201:202], y[:, 201:]], 1)
"""
LEAVES = """
class Layer(Layer):
    def forward(self, x, shared):
        raise SystemExit(0)
"""
NO_COST = """
def cost(dims, config, length):
    size = dims.model_dim**2
    work = Work(products=PRODUCTS, elementwise=ELEMENTWISE)
    return Cost(forward=work, decode=work, state_bytes=8 * length * dims.model_dim, parameters=4 * size)
"""
COST = """
def cost(dims, config, length):
    size = dims.model_dim**2
    work = Work(products=8.0 * size + 2 * (length + 1) * dims.model_dim)
    return Cost(forward=work, decode=work, state_bytes=8 * length * dims.model_dim, parameters=4 * size + 1)
"""

# What is planted, how the file ends, the claim that names it, the backend, and what is said.
FAULTS: dict[str, tuple[str, str, str, str, str]] = {
    "peeking": (PEEKS, FULL, "causal", "own_kernel", "y at position 0 depends on x at position 1: gradient"),
    "leaking": (LEAKS, FULL, "causal", "own_kernel", "position 0 depends on x at position 1"),
    "drifting in decode": (DRIFTS, FULL, "step", "own_kernel", "y token by token at position 1,"),
    "mixing rows": (BATCH, FULL, "batch", "own_kernel", "y with the other row changed at position 0"),
    "peeking with a switch off": (ONLY_OFF, "", "causal [gate=off]", "own", "position 0 depends on x at position 1"),
    "peeking in large batches": (PEEKS_IN_LARGE_BATCHES, FULL, "batch", "own_kernel", "with its row alone"),
    "peeking once": (
        PEEKS_ONCE,
        FULL,
        "causal",
        "own_kernel",
        "with x changed from position 201 on, y at position 200",
    ),
    "leaving": (LEAVES, FULL, "untouched", "own_kernel", "raises SystemExit"),
    "a wrong cost": (COST, FULL + ", cost=cost", "cost", "", "it says 4,097 parameters, the layer has 4,096"),
}
for name, products, elementwise, says in (
    ("of no products", "0", "0", "the layer's matrices alone take 8,192"),
    ("that is no number", "float('nan')", "0", "it says nan FLOPs of products a token"),
    ("below zero", "9000", "-1", "it says -1 FLOPs of element-wise work"),
):
    wrong = NO_COST.replace("PRODUCTS", products).replace("ELEMENTWISE", elementwise)
    FAULTS[f"a cost {name}"] = (wrong, FULL + ", cost=cost", "cost", "", says)
for head in range(DIMS.num_heads):
    FAULTS[f"head {head} wrong"] = (
        WRONG_HEAD.replace("HEAD", str(head)),
        FULL,
        "values",
        "own_kernel",
        f"the output at position 0, head {head},",
    )
    FAULTS[f"head {head} with a wrong gradient"] = (
        WRONG_GRADIENT.replace("HEAD", str(head)),
        FULL,
        "gradients",
        "own_kernel",
        f"the gradient of k at position 0, head {head},",
    )
