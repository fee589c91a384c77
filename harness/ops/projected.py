"""The layer around a core that works on queries, keys and values: projections, positions, cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from harness.ops.positions import rotate
from harness.spec import Dims


class KeyValueCache(NamedTuple):
    """What a score mixer keeps while it decodes.

    Args:
        k: keys so far, positions applied, [B, S, G, D].
        v: values so far [B, S, G, Dv].
        length: tokens seen; more than S where a window dropped some.
    """

    k: Tensor
    v: Tensor
    length: int


class ScoreLayer(nn.Module):
    """Projections q, k, v, o around a core; a variant adds `arguments` and, where it must, `finish`.

    The projections carry these names in every variant, so that initial values keyed by name are the same in all.

    Args:
        dims: the model around it.
        config: the variant's config; `kv_heads`, `window` and `rope_base` are read where it has them.
        layer_index: position of the layer, from 0.
        core: backend function, signature of the variant's `reference`.
        rope: turn queries and keys by their positions.

    Raises:
        ValueError: the heads do not fit the config.
    """

    def __init__(self, dims: Dims, config: Any, *, layer_index: int, core: Callable[..., Any], rope: bool) -> None:
        super().__init__()
        kv_heads = getattr(config, "kv_heads", None) or dims.num_heads
        if dims.num_heads % kv_heads:
            raise ValueError(f"kv_heads={kv_heads} does not divide num_heads={dims.num_heads}")
        if rope and dims.head_dim % 2:
            raise ValueError(
                f"head_dim={dims.head_dim} is odd: rotary positions turn pairs; change model_dim or num_heads"
            )
        self.dims, self.config, self.core, self.rope = dims, config, core, rope
        self.window: int | None = getattr(config, "window", None)
        self.rope_base: float = getattr(config, "rope_base", 10_000.0)
        self.q = nn.Linear(dims.model_dim, dims.model_dim, bias=False)
        self.k = nn.Linear(dims.model_dim, kv_heads * dims.head_dim, bias=False)
        self.v = nn.Linear(dims.model_dim, kv_heads * dims.head_dim, bias=False)
        self.o = nn.Linear(dims.model_dim, dims.model_dim, bias=False)

    def project(self, x: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x [B, T, M], positions applied: [B, T, H, D], [B, T, G, D] twice."""
        q, k, v = (linear(x).unflatten(-1, (-1, self.dims.head_dim)) for linear in (self.q, self.k, self.v))
        if self.rope:
            q, k = rotate(q, start=start, base=self.rope_base), rotate(k, start=start, base=self.rope_base)
        return q, k, v

    def mix(self, q: Tensor, k: Tensor, v: Tensor, own: Tensor, arguments: dict[str, Any]) -> Tensor:
        """Core, `finish` and output projection; `own` are the queries' values."""
        # The core decides its own precision: autocast would round what it computes in float32 on purpose.
        with torch.autocast(q.device.type, enabled=False):
            out = self.finish(self.core(q, k, v, **arguments), own)
        projected: Tensor = self.o(out.flatten(-2))
        return projected

    def arguments(self, keys: int) -> dict[str, Any]:
        """Keyword arguments of the core beyond q, k, v, for that many keys."""
        return {}

    def finish(self, out: Any, v: Tensor) -> Tensor:
        """What lies between the core's result and the output projection: [B, T, H, Dv]; v is the queries' own."""
        result: Tensor = out
        return result

    def inputs(self, x: Tensor, shared: dict[str, Any]) -> dict[str, Any]:
        """The arguments of `reference` for x [B, T, M]."""
        q, k, v = self.project(x)
        return {"q": q, "k": k, "v": v, **self.arguments(x.shape[1])}

    def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
        """[B, T, M] to [B, T, M]."""
        arguments = self.inputs(x, shared)
        q, k, v = (arguments.pop(name) for name in ("q", "k", "v"))
        return self.mix(q, k, v, v, arguments)

    def step(self, x: Tensor, state: KeyValueCache | None, shared: dict[str, Any]) -> tuple[Tensor, KeyValueCache]:
        """One token: x [B, 1, M] and the cache of those before it (None at the start)."""
        seen = 0 if state is None else state.length
        q, k, v = self.project(x, start=seen)
        own = v
        if state is not None:
            k, v = torch.cat([state.k, k], dim=1), torch.cat([state.v, v], dim=1)
        if self.window is not None:
            k, v = k[:, -self.window :], v[:, -self.window :]
        return self.mix(q, k, v, own, self.arguments(k.shape[1])), KeyValueCache(k, v, seen + 1)
