"""Example: the maps of one short sequence that a person can read, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.data import Evaluation, Source
from harness.measures.finding import Finding, NotDefinedError, require_finite
from harness.measures.inside import look
from harness.measures.maps import attention_map, channels, gives_maps
from harness.model import Decoder
from harness.spec import MixerSpec

NAME = "example"
VERSION = 1

LENGTH = 32
HEADS = 4
"""Heads (or channels) kept of each layer, the first ones."""


def measure(model: Decoder, specs: Sequence[MixerSpec], source: Source, *, length: int) -> Finding:
    """Maps of the first sequence of the selection split.

    Args:
        model: the decoder.
        specs: the mixer of each layer.
        source: the data.
        length: tokens at most, the training length.

    Returns:
        `maps` [L, H, T, T], what the last layer's are maps of (head or channel), and the tokens as text.

    Raises:
        NotDefinedError: a mixer has no maps, or they are not finite.
    """
    reason = next(filter(None, map(gives_maps, specs)), None)
    if reason is not None:
        raise NotDefinedError(reason)
    size = min(LENGTH, length)
    data = source.evaluation("selection", length=size, tokens=size)
    device = next(model.parameters()).device
    inside = look(model, torch.from_numpy(data.inputs[:1]).to(device))
    maps = torch.stack(
        [attention_map(spec, inputs)[0, :HEADS].float() for spec, inputs in zip(specs, inside.inputs, strict=True)]
    )
    require_finite("attention maps", maps)
    of = "channel" if channels(inside.inputs[-1], specs[-1]) else "head"
    return Finding({"tokens": _words(source, data, size), "of": of}, {"maps": maps.cpu().numpy()})


def _words(source: Source, data: Evaluation, size: int) -> list[str]:
    tokens = data.inputs[0]
    spell = getattr(source, "spell", None)
    if spell is not None:
        found: list[str] = spell(tokens)
        return found
    covered = getattr(source, "covered", None)
    if covered is None:
        return [str(token) for token in tokens.tolist()]
    # The text behind the targets is that of the inputs, one place later; the first input's is not among it.
    text = covered("selection", length=size, tokens=size)
    ends = data.target_bytes[0].cumsum()
    words = [text[end - length : end] for end, length in zip(ends, data.target_bytes[0], strict=True)]
    first = bytes([tokens[0]]) if source.vocab_size == 256 else b"..."
    return [word.decode(errors="replace") for word in (first, *words[: size - 1])]
