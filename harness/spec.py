"""The vocabulary of a mixer: its dimensions, the fields of its config, its backends, its specification.

Letters of the shapes used in every docstring:

    B batch rows   T tokens (queries)   S keys   M model width   H query heads   G key and value heads (H = G x group)
    D width of a head's queries and keys   Dv width of its values   W entries of a distance table
    E inner channels and N states a channel of a recurrent mixer   L layers   V vocabulary
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


class _Never:
    """The absence of a field that has always been there: no value equals it."""


NEVER: Any = _Never()
Reason = str | None


@dataclass(frozen=True, kw_only=True)
class Dims:
    """What a layer must know of the model around it.

    Args:
        model_dim: width of the residual stream, M.
        num_heads: query heads, H; divides `model_dim`.
        num_layers: layers of the model, L.
        length: tokens of a training sequence, T.
    """

    model_dim: int
    num_heads: int
    num_layers: int
    length: int

    @property
    def head_dim(self) -> int:
        """Width of one head, D = M / H."""
        return self.model_dim // self.num_heads


@dataclass(frozen=True, kw_only=True)
class Role:
    """What a config field is for; written by `knob`, `choice`, `switch` and `size`, read by everything else.

    Args:
        kind: which of the four it is.
        low, high, log: the range a search covers (`knob`), on a log scale or not.
        options: the values a `choice` may take, the default first.
        off: the value that removes the part (`switch`).
        removes: what is gone then, in words (`switch`).
        equals: the arm that remains then, where one exists (`switch`).
        least, most, above: hard limits of the value itself (`>=`, `<=`, `>`), beyond which it means nothing.
        absent: the value that stands for "the field did not exist yet": left out of a run's id.
    """

    kind: Literal["knob", "choice", "switch", "size"]
    low: float | None = None
    high: float | None = None
    log: bool = False
    options: tuple[Any, ...] = ()
    off: Any = None
    removes: str = ""
    equals: str | None = None
    least: float | None = None
    most: float | None = None
    above: float | None = None
    absent: Any = NEVER


def _field(default: Any, role: Role) -> Any:
    return dataclasses.field(default=default, metadata={"role": role})


def knob(
    default: float,
    *,
    low: float,
    high: float,
    log: bool = False,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    absent: Any = NEVER,
) -> Any:
    """A number worth tuning: `low` to `high` is what a search covers, `least`, `most` and `above` what is legal."""
    return _field(
        default,
        Role(kind="knob", low=low, high=high, log=log, least=least, most=most, above=above, absent=absent),
    )


def choice(default: Any, *others: Any, absent: Any = NEVER) -> Any:
    """One of a few values; a search leaves it at its default unless told otherwise."""
    return _field(default, Role(kind="choice", options=(default, *others), absent=absent))


def switch(default: Any, off: Any, *, removes: str, equals: str | None = None, absent: Any = NEVER) -> Any:
    """A part that can be taken out: what an ablation turns off. Never searched: a search would only delete it."""
    return _field(default, Role(kind="switch", off=off, removes=removes, equals=equals, absent=absent))


def size(
    default: int | float | str | None,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    absent: Any = NEVER,
) -> Any:
    """A value that shapes the run and is set by hand, never searched: a window, a table's length, a path."""
    return _field(default, Role(kind="size", least=least, most=most, above=above, absent=absent))


def role_of(field: dataclasses.Field[Any]) -> Role:
    """The role of a dataclass field; a plain field with a default counts as a `size`."""
    role: Role = field.metadata.get("role", Role(kind="size"))
    return role


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One way to compute a mixer's core, and where it may run.

    Args:
        name: what `backend=` and the record call it.
        run: a function with the signature of the mixer's `reference`.
        forward: device kinds its forward pass runs on.
        backward: device kinds its backward pass runs on.
        dtypes: inputs it takes.
        probe: tries a tiny real call on a device kind; the reason why it fails, or None.
        supports: the reason why it cannot serve these dimensions and this config, or None.
    """

    name: str
    run: Callable[..., Any]
    forward: tuple[str, ...] = ("cpu", "cuda")
    backward: tuple[str, ...] = ("cpu", "cuda")
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    probe: Callable[[str], Reason] | None = None
    supports: Callable[[Dims, Any], Reason] | None = None

    def refuses(self, device: str, dtype: str, *, dims: Dims | None = None, config: Any = None) -> Reason:
        """Why training through this backend is impossible, or None where it works.

        Args:
            device: `cpu` or `cuda`.
            dtype: `float32` or `bfloat16`, the type of the core's inputs.
            dims, config: the layer to serve; without them only the machine is asked.
        """
        if device not in self.forward:
            return f"runs on {' and '.join(self.forward)}, not on {device}"
        if device not in self.backward:
            return f"has no backward pass on {device}"
        if dtype not in self.dtypes:
            return f"takes {' and '.join(self.dtypes)}, not {dtype}"
        if self.supports is not None and dims is not None:
            reason = self.supports(dims, config)
            if reason:
                return reason
        return self.probe(device) if self.probe is not None else None


@dataclass(frozen=True, kw_only=True)
class Work:
    """FLOPs of one token.

    A multiply-add is two. Beside matrix products each +, -, *, /, comparison, exp, log and root of one number is one,
    and what is made of these (sigmoid: 4) is their sum; a sum or maximum over n numbers is n. What a pass computes
    once for all its rows (angles, masks, tables) is left out.

    Args:
        products: in matrix products and convolutions.
        elementwise: in all else.
    """

    products: float
    elementwise: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.products + self.elementwise

    def __add__(self, other: Work) -> Work:
        """Work of two parts together."""
        return Work(products=self.products + other.products, elementwise=self.elementwise + other.elementwise)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a mixer's layer, projections included, or a whole model costs at a length; a backend may do more.

    Args:
        forward: of a training pass, for each token, mean over a causal sequence. Hidden pairs are no work: where keys
            are all those up to the query, a token has (T + 1) / 2 of them, a share (T + 1) / 2T of the full square.
        decode: of one more token when the sequence then has that length.
        state_bytes: kept between two steps of decoding one sequence of that length, in float32.
        parameters: trained numbers.
    """

    forward: Work
    decode: Work
    state_bytes: int
    parameters: int

    @property
    def backward(self) -> Work:
        """Twice the forward pass: a product has two gradients. What a backend computes again is not counted."""
        return self.forward + self.forward

    @property
    def training(self) -> float:
        """FLOPs of a token in training, forward and backward."""
        return self.forward.total + self.backward.total

    def __add__(self, other: Cost) -> Cost:
        """Two parts of a model together."""
        return Cost(
            forward=self.forward + other.forward,
            decode=self.decode + other.decode,
            state_bytes=self.state_bytes + other.state_bytes,
            parameters=self.parameters + other.parameters,
        )


@dataclass(frozen=True, kw_only=True)
class MixerSpec:
    """A token mixer, whole: what a variant's file exports as `SPEC`.

    Required of anybody's file are `name`, `Config` and `Layer`; everything else is optional, and `check` says
    "not given" where it is missing.

    Args:
        name: what arms and tables call it.
        Config: frozen dataclass of knobs, choices, switches and sizes.
        Layer: module `Layer(dims, config, *, layer_index, core)` with `forward(x, shared) -> y`, [B, T, M] to
            [B, T, M]; optionally `step(x, state, shared) -> (y, state)` for one token (state None at the start),
            `inputs(x, shared)` (the arguments of `reference`), `draw(name, parameter, generator)` (its own
            initial values; None leaves a parameter to the model's rule) and `scalars()` (numbers worth following,
            name to a tensor [H] or [H, W]; given as the parameters themselves, their gradients are followed too).
        source: paper and equation.
        reference: the definition of correct, term by term.
        backends: fastest first; "auto" takes the first that does not refuse.
        aliases: other names, each with the fields it pins.
        linear_in: the argument that `reference` is linear in, all else given; the identity in its place makes the
            output the attention map. None where there is no such argument, and so no map.
        plain: arguments of `reference` under which its weights are the plain softmax of the same scores; None where
            no arguments make them so.
        identities: arms of this variant that compute the same function as another arm, bit for bit.
        cost: `cost(dims, config, length)`, what one layer costs at a length.
        state_knob: the config's field that makes the state larger or smaller; empty where nothing does.
        checks_past: tokens after which a window or chunk of the config repeats itself; lengths tested go past it.
        bf16_output, bf16_gradient: largest error in bfloat16, as a share of the largest entry of the reference.
        bf16_reason: why they are wider than 2e-2 and 5e-2, where they are.
    """

    name: str
    Config: type
    Layer: Callable[..., Any]
    source: str = ""
    reference: Callable[..., Any] | None = None
    backends: tuple[Backend, ...] = ()
    aliases: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    linear_in: str | None = "v"
    plain: Mapping[str, Any] | None = None
    identities: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cost: Callable[[Dims, Any, int], Cost] | None = None
    state_knob: str = ""
    checks_past: Callable[[Any], int] = lambda config: 0
    bf16_output: float = 2e-2
    bf16_gradient: float = 5e-2
    bf16_reason: str = ""

    def backend(self, name: str) -> Backend:
        """The backend of that name.

        Raises:
            KeyError: there is none.
        """
        return {backend.name: backend for backend in self.backends}[name]
