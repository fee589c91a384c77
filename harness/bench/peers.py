"""Other packages that are timed beside the project's own code, where they are installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

NAMES = ("transformers", "mambapy")


@functools.cache
def missing(package: str) -> str | None:
    """Why a package cannot be used here, or None: its import decides."""
    try:
        if package == "transformers":
            from transformers import LlamaForCausalLM  # noqa: F401
        else:
            from mambapy.mamba import MambaBlock  # noqa: F401
    # A package built for another torch fails in any way it likes; each of them means "not here".
    except Exception as error:
        return f"{type(error).__name__}: {error}; pip install -e '.[peers]'"
    return None


def mambapy_block(model_dim: int, device: str) -> nn.Module:
    """Mamba's block of mambapy at its defaults, through its parallel scan in plain torch."""
    from mambapy.mamba import MambaBlock, MambaConfig

    torch.manual_seed(0)
    built: nn.Module = MambaBlock(MambaConfig(d_model=model_dim, n_layers=1, pscan=True, use_cuda=False))
    return built.to(device)


def llama(
    *, model_dim: int, layers: int, heads: int, mlp_dim: int, vocab_size: int, length: int, device: str
) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """transformers' Llama of a shape, its attention through torch's fused kernel.

    Returns:
        The model, and a function from tokens [B, T] to logits [B, T, V].
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=model_dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=mlp_dim,
        vocab_size=vocab_size,
        max_position_embeddings=length,
        attn_implementation="sdpa",
        use_cache=False,
    )
    built: Any = LlamaForCausalLM(config).to(device).train()
    return built, lambda tokens: built(input_ids=tokens).logits
