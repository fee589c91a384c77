"""Element-wise work of each mixer, counted number by number in plain Python at two tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from harness import registry
from harness.spec import Dims

HEADS, WIDTH, TOKENS = 2, 4, 2
DIMS = Dims(model_dim=HEADS * WIDTH, num_heads=HEADS, num_layers=1, length=TOKENS)


class Counter:
    """How many operations its numbers took part in."""

    def __init__(self) -> None:
        self.count = 0

    def number(self, value: float = 0.5) -> N:
        return N(value, self)


class N:
    """A number whose every operation is counted as one; `float` values beside it are constants."""

    def __init__(self, value: float, counter: Counter) -> None:
        self.value, self.counter = value, counter

    def _made(self, value: float) -> N:
        self.counter.count += 1
        return N(value, self.counter)

    def __add__(self, other: Any) -> N:
        return self._made(self.value + getattr(other, "value", other))

    def __mul__(self, other: Any) -> N:
        return self._made(self.value * getattr(other, "value", other))

    def __truediv__(self, other: Any) -> N:
        return self._made(self.value / getattr(other, "value", other))

    def __rtruediv__(self, other: float) -> N:
        return self._made(other / self.value)

    def __neg__(self) -> N:
        return self._made(-self.value)

    def max(self, other: N) -> N:
        return self._made(max(self.value, other.value))

    def exp(self) -> N:
        return self._made(math.exp(self.value))

    def log(self) -> N:
        return self._made(math.log(abs(self.value) + 1e-9))

    def root(self) -> N:
        return self._made(abs(self.value) ** 0.5)

    # sigmoid(x) = 1 / (1 + exp(-x)), softplus(x) = log(1 + exp(x)), log sigmoid(x) = -softplus(-x)
    def sigmoid(self) -> N:
        return 1.0 / ((-self).exp() + 1.0)

    def softplus(self) -> N:
        return (self.exp() + 1.0).log()

    def log_sigmoid(self) -> N:
        return -(-self).softplus()

    def silu(self) -> N:
        return self * self.sigmoid()


def total(numbers: Sequence[N], start: N) -> N:
    """A sum that begins at zero: n additions."""
    for number in numbers:
        start = start + number
    return start


def softmax(row: list[N], c: Counter) -> list[N]:
    largest = c.number(-9.0)
    for score in row:
        largest = largest.max(score)
    weights = [(score + N(-largest.value, c)).exp() for score in row]
    whole = total(weights, c.number(0.0))
    return [weight / whole for weight in weights]


def rms(channels: list[N], c: Counter, *, weights: bool = True) -> list[N]:
    factor = (total([x * x for x in channels], c.number(0.0)) / float(len(channels)) + 1e-6).root()
    turned = [x * factor for x in channels]
    return [x * 1.5 for x in turned] if weights else turned


def rotated(channels: list[N]) -> list[N]:
    half = len(channels) // 2
    pairs = list(zip(channels[:half], channels[half:], strict=True))
    # x cos - y sin: the sign belongs to the table of sines.
    return [x * 0.6 + y * -0.8 for x, y in pairs] + [y * 0.6 + x * 0.8 for x, y in pairs]


def scores(c: Counter, *, own: bool = True, rope: bool = True, norm: bool = False) -> list[list[N]]:
    """Rows of scaled scores of each head and query; products of matrices are not counted."""
    for _ in range(TOKENS * 2 * HEADS):
        channels = [c.number() for _ in range(WIDTH)]
        channels = rms(channels, c) if norm else channels
        _ = rotated(channels) if rope else channels
    keys = [query + own for query in range(TOKENS)] * HEADS
    return [[c.number() * 0.5 for _ in range(seen)] for seen in keys]


def of_softmax(c: Counter) -> None:
    for row in scores(c):
        softmax(row, c)


def of_alibi(c: Counter) -> None:
    for row in scores(c, rope=False):
        softmax([score + 0.1 for score in row], c)


def of_lazy(c: Counter) -> None:
    for row in scores(c):
        weights = softmax([score + 0.1 for score in row], c)
        offset = c.number(-1.0) / float(len(row))
        for weight in weights:
            (weight + offset).max(c.number(0.0))


def of_lazy_renormalised(c: Counter) -> None:
    for row in scores(c):
        weights = softmax([score + 0.1 for score in row], c)
        kept = [(weight + c.number(-0.1)).max(c.number(0.0)) for weight in weights]
        whole = total(kept, c.number(0.0))
        _ = [weight / whole for weight in kept]
        rms([c.number() for _ in range(WIDTH)], c, weights=False)


def of_sigmoid(c: Counter) -> None:
    for row in scores(c, norm=True):
        for score in row:
            (score + -math.log(TOKENS)).sigmoid()


def of_row_norm(c: Counter) -> None:
    for row in scores(c, norm=True):
        softmax([(score + -1.0).log_sigmoid() for score in row], c)


def sticks(row: list[N], c: Counter) -> None:
    left = c.number(0.0)
    for score in reversed(row):
        before = left
        left = left + (-score).log_sigmoid()
        (score.log_sigmoid() + before).exp()
    left.exp()


def of_stick_breaking(c: Counter) -> None:
    for row in scores(c, rope=False, own=False):
        sticks(row, c)


def of_head_bias(c: Counter) -> None:
    for row in scores(c, rope=False, own=False):
        sticks(row, c)
        out = [c.number() + c.number() * 0.2 for _ in range(WIDTH)]
        mean = total(out, c.number(0.0)) / float(WIDTH)
        centred = [x + N(-mean.value, c) for x in out]
        spread = total([x * x for x in centred], c.number(0.0)) / float(WIDTH)
        factor = (spread + 1e-5).root()
        _ = [x * factor * 1.5 + 0.1 for x in centred]


def of_mamba(c: Counter, *, delta: bool = True, gate: bool = True, skip: bool = True) -> None:
    for _ in range(TOKENS):
        for _ in range(2 * DIMS.model_dim):
            u, step = (c.number() + 0.1).silu(), c.number()
            if delta:
                step = (step + 0.1).softplus()
            written, states = step * u, []
            for _ in range(16):
                h = (step * -1.0).exp() * c.number() + written * c.number()
                states.append(h * c.number())
            y = total(states, c.number(0.0))
            y = y + u * 1.0 if skip else y
            _ = y * c.number().silu() if gate else y


CASES: dict[str, tuple[Callable[[Counter], None], str, dict[str, Any]]] = {
    "softmax": (of_softmax, "softmax", {}),
    "softmax with ALiBi": (of_alibi, "softmax", {"positions": "alibi"}),
    "lazy": (of_lazy, "lazy", {}),
    "lazy, renormalised and normed": (
        of_lazy_renormalised,
        "lazy",
        {"renormalise": True, "divide_by_n": False, "output_norm": True, "tau_start": -0.1},
    ),
    "lazy as softmax": (of_softmax, "lazy", {"bias": False, "elastic": False}),
    "sigmoid": (of_sigmoid, "sigmoid", {}),
    "sigmoid, row by row": (of_row_norm, "sigmoid", {"row_norm": True}),
    "stick-breaking": (of_stick_breaking, "stick_breaking", {}),
    "stick-breaking with a norm": (of_head_bias, "stick_breaking", {"remainder": "head_bias"}),
    "mamba": (of_mamba, "mamba", {}),
    "mamba without a gate": (lambda c: of_mamba(c, gate=False), "mamba", {"gate": False}),
    "mamba of constant steps": (lambda c: of_mamba(c, delta=False), "mamba", {"selective_delta": False}),
    "mamba without the path around": (lambda c: of_mamba(c, skip=False), "mamba", {"skip": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_element_wise_work_is_what_two_tokens_take_number_by_number(case: str) -> None:
    walk, name, fields = CASES[case]
    counter = Counter()
    walk(counter)
    variant = registry.find(name)
    cost = variant.spec.cost(DIMS, registry.configure(variant, fields), TOKENS)
    assert cost.forward.elementwise * TOKENS == counter.count


def test_two_tokens_of_one_head_by_pen_and_paper() -> None:
    # One head of two channels, three pairs. Turned: 2 tokens x (q, k) x 2 channels x 3 = 24. A pair: scale, largest,
    # difference, exp, sum, quotient = 6, so 18. Products: 3 pairs x (2 channels for q.k + 2 for a v) x 2 = 24, and
    # 2 tokens x 4 matrices of 2 x 2 x 2 = 64.
    variant = registry.find("softmax")
    cost = variant.spec.cost(Dims(model_dim=2, num_heads=1, num_layers=1, length=2), variant.spec.Config(), 2)
    assert (2 * cost.forward.elementwise, 2 * cost.forward.products) == (24 + 18, 24 + 64)
    assert cost.backward.total == 2 * cost.forward.total
    # Keys and values of 2 tokens x 2 channels x 4 bytes.
    assert (cost.state_bytes, cost.parameters) == (32, 16)
