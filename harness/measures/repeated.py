"""Repeated-token probe: how far the last token moves when the same token is appended once more.

    d(n) = |x_n - x_{n-1}| / |x_{n-1}|,   x_n the last token's final residual after n copies of one token

A sequence of equal tokens leaves an attention row nothing to choose from; d falls where representations converge on
one point, and stays up where position still tells the copies apart.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from harness.measures.finding import Finding, require_finite
from harness.measures.inside import look
from harness.model import Decoder

NAME = "repeated"
VERSION = 1

TOKENS: Final = 8
"""Tokens that are repeated, each in a sequence of its own: the most frequent ones of the probe."""


def measure(model: Decoder, tokens: NDArray[np.int64], *, length: int) -> Finding:
    """The probe on the most frequent tokens.

    Args:
        model: the decoder.
        tokens: of the probe, [n, T]; they say which tokens are frequent.
        length: copies, at most what the model was trained on.

    Raises:
        NotDefinedError: the stream is not finite.
    """
    kinds, counts = np.unique(tokens, return_counts=True)
    frequent = kinds[np.argsort(-counts, kind="stable")][:TOKENS]
    device = next(model.parameters()).device
    copies = torch.from_numpy(np.repeat(frequent[:, None], length, axis=1)).to(device)
    # The model is causal: position n of one long sequence is the end of the sequence of n copies.
    last = look(model, copies).residual[-1].double()
    require_finite("the residual stream", last)
    moved = ((last[:, 1:] - last[:, :-1]).norm(dim=-1) / last[:, :-1].norm(dim=-1)).median(0).values
    marks = [n for n in (2, 4, 8, 16, 32, 64, 128, 256) if n <= length]
    values = {
        "tokens": len(frequent),
        "length_tokens": length,
        "copies": marks,
        "moved_by_copies": [float(moved[n - 2]) for n in marks],
        "moved_at_the_end": float(moved[-1]),
    }
    return Finding(values, {"moved": moved.cpu().numpy()})
