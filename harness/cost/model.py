"""The cost of a model: its mixers' own formulas, and the decoder around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.config import ModelConfig, RunConfig
from harness.errors import UsageError
from harness.ops.costs import SILU, norm
from harness.spec import Cost, Dims, MixerSpec, Work
from harness.train import mixers


def layer_cost(spec: MixerSpec, config: Any, dims: Dims, length: int) -> Cost:
    """What one layer of a mixer costs.

    Args:
        spec, config: the mixer.
        dims: the model around it.
        length: tokens of the sequence.

    Raises:
        UsageError: its file gives no formulas, or they fail or give no cost.
    """
    if spec.cost is None:
        raise UsageError(
            f"{spec.name} has no cost formulas: add `cost` to its SPEC (harness/spec.py says what it returns)"
        )
    try:
        found = spec.cost(dims, config, length)
    # A user's formula may fail in any way; it is named, and no table goes by it.
    except Exception as error:
        raise UsageError(f"the cost formula of {spec.name} fails: {type(error).__name__}: {error}") from error
    if not isinstance(found, Cost):
        raise UsageError(f"the cost formula of {spec.name} returns a {type(found).__name__}; it must return a Cost")
    numbers = (found.forward.total, found.decode.total, found.state_bytes, found.parameters)
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise UsageError(f"the cost formula of {spec.name} gives {found}; allowed are finite numbers of at least 0")
    return found


def model_cost(model: ModelConfig, layers: Sequence[tuple[MixerSpec, Any]], *, vocab_size: int, length: int) -> Cost:
    """What a whole decoder costs, from the embedding to the logits; the loss on them is left out.

    Args:
        model: its shape.
        layers: mixer and config of each layer.
        vocab_size: V.
        length: T.

    Raises:
        UsageError: a mixer without formulas.
    """
    dims = Dims(model_dim=model.model_dim, num_heads=model.num_heads, num_layers=model.num_layers, length=length)
    total = _ends(model, vocab_size, length)
    for spec, config in layers:
        total = total + layer_cost(spec, config, dims, length) + rest_of_block(model)
    return total


def run_cost(run: RunConfig, vocab_size: int) -> Cost:
    """What the model of a run costs at the length it trains on.

    Raises:
        UsageError: a mixer without formulas.
    """
    layers = [(mixer.spec, mixer.config) for mixer in mixers(run)]
    return model_cost(run.model, layers, vocab_size=vocab_size, length=run.data.length)


def rest_of_block(model: ModelConfig) -> Cost:
    """A block without its mixer: two norms, two residual sums, the SwiGLU."""
    width, hidden = model.model_dim, model.mlp_dim
    work = Work(products=2.0 * 3 * width * hidden, elementwise=2 * norm(width) + 2.0 * width + (SILU + 1) * hidden)
    return Cost(forward=work, decode=work, state_bytes=0, parameters=3 * width * hidden + 2 * width)


def _ends(model: ModelConfig, vocab_size: int, length: int) -> Cost:
    """Embedding, learned positions, last norm and unembedding."""
    width = model.model_dim
    learned = model.positions == "learned"
    work = Work(products=2.0 * width * vocab_size, elementwise=norm(width) + width * learned)
    tables = vocab_size * (1 if model.tie_embeddings else 2) + length * learned
    return Cost(forward=work, decode=work, state_bytes=0, parameters=width * (tables + 1))
