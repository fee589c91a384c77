"""Claims about the flow through a layer: rows of a batch apart, decoding one token at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from harness.contract.finding import AXES, LAYER, STEP, Absent, Broken, compare
from harness.contract.stack import Stack
from harness.contract.subject import NOISE, Subject, told

ROWS = 33
"""Rows of one pass at most: one more than are scored at once in training."""
# As many rows in one pass as keep a quadratic map to this many entries a head.
ENTRIES = 2**22


def at_once(length: int) -> int:
    """Rows of one pass at a length."""
    return max(2, min(ROWS, ENTRIES // length**2))


def modes(subject: Subject) -> Iterator[tuple[Stack, str]]:
    """The layer in evaluation mode, then in training mode, each with words for it.

    Dropout is no obstacle, for each pass starts from the same random state; where the same input gives another
    output even so, training mode is left out.
    """
    yield subject.layer, ""
    layer, x = subject.build(noise=NOISE).train(), subject.x(subject.longest)
    if torch.equal(seeded(subject, layer, x), seeded(subject, layer, x)):
        yield layer, " in training mode"


def seeded(subject: Subject, layer: Stack, x: Tensor) -> Tensor:
    """The layer's output for x, without gradients, from the same random state each time."""
    torch.manual_seed(subject.seed)
    with torch.no_grad():
        return subject.run(x, layer=layer)


def batch(subject: Subject) -> str:
    """A row's output does not depend on the other rows, before it or after it, nor on how many there are."""
    sizes = sorted({2, 5, at_once(subject.longest)})
    for layer, mode in modes(subject):
        for rows in sizes if not mode else sizes[-1:]:
            x = subject.x(subject.longest, batch=rows)
            y = seeded(subject, layer, x)
            for kept in _kept(rows):
                moved = seeded(subject, layer, torch.where(kept[:, None, None].to(x.device), x, 1.0 - 3.0 * x))
                _same(subject, moved, y, kept, f"with the other row{'s' * (rows > 2)} changed{mode}")
            # Dropout deals another mask to another number of rows.
            for row in (0, rows - 1) if not mode else ():
                alone = seeded(subject, layer, x[row : row + 1])
                _same(subject, alone.expand_as(y), y, torch.arange(rows) == row, "with its row alone")
    return f"{', '.join(map(str, sizes))} rows"


def _kept(rows: int) -> Tensor:
    """Which rows stay while the others change, a line a trial: a half, then the other half."""
    half = torch.randperm(rows, generator=torch.Generator().manual_seed(0)) < rows // 2
    return torch.stack([half, ~half])


def _same(subject: Subject, found: Tensor, y: Tensor, kept: Tensor, why: str) -> None:
    got = torch.where(kept[:, None, None].to(y.device), found, y)
    what = f"y {why}" if len(y) == 2 else f"in a batch of {len(y)}, y {why}"
    compare(got, y, share=subject.share(LAYER), axes=AXES[3], what=what)


def step(subject: Subject) -> str:
    """Token by token, from an empty state, gives what all tokens at once give."""
    layers = list(subject.layer.layers)
    if not all(hasattr(layer, "step") for layer in layers):
        raise Absent("Layer.step is not given")
    length = subject.longest
    x = subject.x(length)
    states = [None for _ in layers]
    outputs = []
    with torch.no_grad():
        wanted = subject.run(x)
        for t in range(length):
            try:
                with subject.autocast():
                    y, states = subject.layer.step(x[:, t : t + 1].clone(), states)
            except Broken as error:
                raise Broken(f"step at position {t}: {error}") from error
            except Exception as error:
                raise Broken(f"step at position {t} raises {told(error)}") from error
            outputs.append(y)
    compare(torch.cat(outputs, dim=1), wanted, share=subject.share(STEP), axes=AXES[3], what="y token by token")
    return f"{length} tokens"
