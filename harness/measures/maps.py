"""Attention maps of any mixer: its `reference` with the identity in the place of the values.

    A_ij = output of query i where value j is 1 and every other value is 0

Whatever is linear in its values has such a map, a recurrent mixer too; then weights may be negative, and every
channel is a head of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from harness.measures.finding import NotDefinedError
from harness.ops import at_least_float32
from harness.spec import MixerSpec

BLOCK_BYTES = 32 << 20
"""Largest map in memory at once; measures keep about five times this."""

KEYS_AT_ONCE = 16
"""Keys whose maps are made together where each channel has its own."""


def gives_maps(spec: MixerSpec) -> str | None:
    """Why a variant has no attention map, None where it has one."""
    if spec.reference is None or not hasattr(spec.Layer, "inputs"):
        return f"{spec.name} gives no attention map: it needs `reference` in SPEC and `inputs` in its Layer"
    if spec.linear_in is None:
        return f"{spec.name} has no attention map: its output is not linear in any of its arguments"
    return None


@torch.no_grad()
def attention_map(spec: MixerSpec, inputs: Mapping[str, Any], *, plain: bool = False) -> Tensor:
    """The map of one layer.

    Args:
        spec: the mixer.
        inputs: arguments of its reference; the one named `linear_in` is [B, S, G, Dv], or [B, S, E] where every
            channel has its own map.
        plain: of the plain softmax over the same scores instead.

    Returns:
        [B, H, T, S], or [B, E, T, S]; at least float32.

    Raises:
        NotDefinedError: the mixer has no map, or no plain one.
    """
    reason = gives_maps(spec)
    reference, name = spec.reference, spec.linear_in
    if reason is not None or reference is None or name is None:
        raise NotDefinedError(reason or "")
    rest = {key: value for key, value in inputs.items() if key != name}
    if plain:
        if spec.plain is None:
            raise NotDefinedError(f"the weights of {spec.name} are made from no softmax")
        rest |= spec.plain
    values = at_least_float32(inputs[name])
    keys = values.shape[1]
    identity = torch.eye(keys, dtype=values.dtype, device=values.device)

    def out(v: Tensor) -> Tensor:
        result = reference(**rest, **{name: v})
        found: Tensor = result[0] if isinstance(result, tuple) else result
        return found

    if not channels(inputs, spec):
        return out(identity[None, :, None, :].expand(*values.shape[:3], keys)).permute(0, 2, 1, 3)
    # All channels of key j at once, key after key: [S, B, T, E].
    impulses = identity[:, None, :, None].expand(keys, *values.shape)
    found: Tensor = torch.vmap(out, chunk_size=KEYS_AT_ONCE)(impulses)
    return found.permute(1, 3, 2, 0)


def channels(inputs: Mapping[str, Any], spec: MixerSpec) -> bool:
    """Whether each channel, and not each head, has a map."""
    return bool(inputs[spec.linear_in or ""].ndim != 4)


def rows_at_once(inputs: Mapping[str, Any], spec: MixerSpec, length: int) -> int:
    """Sequences whose maps of that length fit into `BLOCK_BYTES`, at least one."""
    values = inputs[spec.linear_in or ""]
    # Without q, heads are counted by the values: each of a recurrent mixer's channels is one.
    heads: int = inputs["q"].shape[2] if "q" in inputs else values.shape[2]
    return max(1, BLOCK_BYTES // (4 * heads * length * length))
