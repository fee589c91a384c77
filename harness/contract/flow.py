"""Claims about positions and rows: who may depend on whom, and decoding one token at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.contract.finding import AXES, LAYER, STEP, Absent, Broken, compare
from harness.contract.subject import Subject, told

# A sparse map may leave a row empty, most of all an early one: of the rows from each of these on, most must not be.
ALIVE = (8, 64)
# Copies of a sequence in one pass: as many as keep a quadratic map to this many entries a head.
ENTRIES = 2**19


def positions(length: int, past: int) -> list[int]:
    """Positions to probe: all of a short sequence; of a long one a sample, both ends, and the edges of blocks."""
    if length <= 16:
        return list(range(length))
    edges = {0, 1, 62, 63, 64, 65, 127, 128, past - 1, past, past + 1, length - 3, length - 2, length - 1}
    sample = {i * (length - 1) // 15 for i in range(16)}
    return sorted(t for t in edges | sample if 0 <= t < length)


def causal(subject: Subject) -> str:
    """The gradient of y_t by x_s is exactly zero for every s > t, and not for all s <= t; nor do values leak back."""
    for length in subject.lengths:
        probed = positions(length, subject.past)
        at_once = max(1, ENTRIES // length**2)
        reach = torch.cat([_reach(subject, length, probed[i : i + at_once]) for i in range(0, len(probed), at_once)])
        _ahead(reach, probed, length)
        _behind(reach, probed, length)
    _no_leak(subject)
    return f"lengths {', '.join(map(str, subject.lengths))}"


def _reach(subject: Subject, length: int, probed: list[int]) -> Tensor:
    # One copy of the sequence for each probed position: a single backward pass serves them all.
    x = subject.x(length, batch=1).repeat(len(probed), 1, 1).requires_grad_()
    y = subject.run(x)
    if not y.requires_grad:
        raise Broken("no gradient of the output reaches the input")
    g = torch.zeros_like(y)
    for row, t in enumerate(probed):
        g[row, t] = subject.like(y[row, t], f"probe {t}")
    (found,) = torch.autograd.grad(y, x, g, allow_unused=True)
    return torch.zeros(len(probed), length) if found is None else found.abs().amax(-1).cpu()


def _ahead(reach: Tensor, probed: list[int], length: int) -> None:
    for row, t in enumerate(probed):
        ahead = (reach[row, t + 1 :] != 0).nonzero()
        if len(ahead):
            s = t + 1 + int(ahead[0])
            raise Broken(
                f"at length {length}, y at position {t} depends on x at position {s}: "
                f"gradient {float(reach[row, s]):.3g}, expected 0"
            )


def _behind(reach: Tensor, probed: list[int], length: int) -> None:
    dead = {t: not bool(reach[row, : t + 1].any()) for row, t in enumerate(probed)}
    for start in ALIVE:
        late = [t for t in probed if t >= start]
        empty = [t for t in late if dead[t]]
        if len(empty) * 2 > len(late):
            raise Broken(
                f"at length {length}, y at position {empty[0]} depends on no position up to {empty[0]}, like "
                f"{len(empty)} of the {len(late)} positions probed from {start} on: every gradient is 0"
            )


def _no_leak(subject: Subject) -> None:
    # A statistic taken without gradient, or a choice such as the largest of all, leaks in values alone.
    for length in (63, subject.longest):
        for cut in (1, length // 2, length - 1):
            x = subject.x(length, batch=1)
            other = torch.cat([x[:, :cut], 1.0 - 3.0 * x[:, cut:]], dim=1)
            with torch.no_grad():
                y, moved = subject.run(x), subject.run(other)
            compare(
                moved[:, :cut],
                y[:, :cut],
                share=subject.share(LAYER),
                axes=AXES[3],
                what=f"at length {length}, with x changed from position {cut} on, y",
            )


def batch(subject: Subject) -> str:
    """A row's output does not depend on the other rows, before it or after it, nor on how many there are."""
    x = subject.x(subject.longest)
    with torch.no_grad():
        y = subject.run(x)
        for row in range(len(x)):
            other = 1.0 - 3.0 * x
            other[row] = x[row]
            moved, alone = subject.run(other)[row], subject.run(x[row : row + 1])[0]
            for found, why in ((moved, "with the other row changed"), (alone, "with its row alone")):
                got = y.clone()
                got[row] = found
                compare(got, y, share=subject.share(LAYER), axes=AXES[3], what=f"y {why}")
    return ""


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
