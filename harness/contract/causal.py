"""The claim about time: no output depends on a later input."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.contract.finding import AXES, LAYER, Broken, compare
from harness.contract.flow import at_once, modes, seeded
from harness.contract.stack import Stack
from harness.contract.subject import LENGTHS, Subject

# A sparse map may leave a row empty, most of all an early one: of the rows from each of these on, most must not be.
ALIVE = (8, 64)


def positions(length: int, past: int) -> list[int]:
    """Positions to probe: every one, or of a longer sequence its ends, the edges of blocks and a few others."""
    if length <= LENGTHS[-1]:
        return list(range(length))
    edges = {1, 64, 127, 128, 255, 256, past - 1, past, past + 1, length - 2, length - 1}
    return sorted(t for t in edges | {11, 29, 83, 101, 181, 223} if 0 <= t < length)


def causal(subject: Subject) -> str:
    """The gradient of y_t by x_s is exactly zero for every s > t, and not for all s <= t; nor do values leak back."""
    tried = "evaluation mode alone: in training the output changes from call to call"
    for layer, mode in modes(subject):
        # What training mode adds is seen in values, at one length of which every position is probed, and at a long one.
        for length in (*subject.lengths, subject.far) if not mode else (LENGTHS[-1], subject.far):
            probed = positions(length, subject.past)
            if not mode:
                _gradients(subject, layer, length, probed)
            cuts = probed if mode else range(length)
            _values(subject, layer, length, [t for t in cuts if t], f"at length {length}{mode}")
        tried = "both modes" if mode else tried
    return f"lengths {', '.join(map(str, (*subject.lengths, subject.far)))}; {tried}"


def _gradients(subject: Subject, layer: Stack, length: int, probed: list[int]) -> None:
    rows = at_once(length)
    parts = [_reach(subject, layer, length, probed[i : i + rows]) for i in range(0, len(probed), rows)]
    reach = torch.cat(parts)
    for row, t in enumerate(probed):
        ahead = (reach[row, t + 1 :] != 0).nonzero()
        if len(ahead):
            s = t + 1 + int(ahead[0])
            raise Broken(
                f"at length {length}, y at position {t} depends on x at position {s}: "
                f"gradient {float(reach[row, s]):.3g}, expected 0"
            )
    dead = {t: not bool(reach[row, : t + 1].any()) for row, t in enumerate(probed)}
    for start in ALIVE:
        late = [t for t in probed if t >= start]
        empty = [t for t in late if dead[t]]
        if len(empty) * 2 > len(late):
            raise Broken(
                f"at length {length}, y at position {empty[0]} depends on no position up to {empty[0]}, like "
                f"{len(empty)} of the {len(late)} positions probed from {start} on: every gradient is 0"
            )


def _reach(subject: Subject, layer: Stack, length: int, probed: list[int]) -> Tensor:
    # One copy of the sequence for each probed position: a single backward pass serves them all.
    x = subject.x(length, batch=1).repeat(len(probed), 1, 1).requires_grad_()
    y = subject.run(x, layer=layer)
    if not y.requires_grad:
        raise Broken("no gradient of the output reaches the input")
    g = torch.zeros_like(y)
    for row, t in enumerate(probed):
        g[row, t] = subject.like(y[row, t], f"probe {t}")
    (found,) = torch.autograd.grad(y, x, g, allow_unused=True)
    return torch.zeros(len(probed), length) if found is None else found.abs().amax(-1).cpu()


def _values(subject: Subject, layer: Stack, length: int, cuts: list[int], place: str) -> None:
    # A statistic taken without gradient, or a choice such as the largest of all, leaks in values alone.
    rows = at_once(length)
    x = subject.x(length, batch=1).repeat(rows, 1, 1)
    y, time = seeded(subject, layer, x), torch.arange(length, device=x.device)
    for start in range(0, len(cuts), rows):
        # The last pass is filled up with rows that are left as they are, so that chance deals all passes the same.
        chosen = [*cuts[start : start + rows], *[length] * rows][:rows]
        kept = time < torch.tensor(chosen, device=x.device)[:, None]
        moved = seeded(subject, layer, torch.where(kept[..., None], x, 1.0 - 3.0 * x))
        for row, cut in enumerate(chosen):
            compare(
                moved[row : row + 1, :cut],
                y[row : row + 1, :cut],
                share=subject.share(LAYER),
                axes=AXES[3],
                what=f"{place}, with x changed from position {cut} on, y",
            )
