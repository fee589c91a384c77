"""What is searched: the knobs of a variant and of the recipe, as their dataclasses declare them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.arms import Arm
from harness.config import RunConfig, TrainConfig
from harness.errors import UsageError, unknown
from harness.fields import Setting, build, check, identity, resolved, settings, shown
from harness.registry import choose_backend, configure
from harness.spec import Dims, Role
from harness.tune.dims import Dim


@dataclass(frozen=True, kw_only=True)
class Space:
    """What is searched for one arm.

    Args:
        arm: the arm.
        run: its run with the defaults, at any seed.
        dims: searched fields, the recipe's first.
        pins: fields that `--space` holds at a value.
        backend: as asked for; `auto` lets each setting take the fastest that serves it.
    """

    arm: Arm
    run: RunConfig
    dims: tuple[Dim, ...]
    pins: Mapping[str, Any] = field(default_factory=dict)
    backend: str = "auto"

    def defaults(self) -> dict[str, Any]:
        """The values of trial 0: the defaults, moved into a range that leaves them out."""
        known = {**resolved(self.arm.mixer), **{f"train.{n}": v for n, v in resolved(self.run.train).items()}}
        found = {}
        for dim in self.dims:
            value = known[dim.name]
            found[dim.name] = (value if value in dim.options else dim.options[0]) if dim.options else dim.tidy(value)
        return found

    def moved(self) -> list[str]:
        """Searched fields whose default lies outside of what is searched."""
        known = {**resolved(self.arm.mixer), **{f"train.{n}": v for n, v in resolved(self.run.train).items()}}
        return [name for name, value in self.defaults().items() if known[name] != value]

    def settle(self, values: Mapping[str, Any], *, seed: int) -> RunConfig:
        """The run at some settings.

        Args:
            values: by the names of the dimensions; pins are added.
            seed: of the run.

        Raises:
            UsageError: the config refuses these settings together.
        """
        return settled(self.arm, self.run, {**self.pins, **values}, seed=seed, backend=self.backend)


def settled(arm: Arm, run: RunConfig, values: Mapping[str, Any], *, seed: int, backend: str) -> RunConfig:
    """A run of an arm with other values for some of its fields, `train.x` for those of the recipe.

    Raises:
        UsageError: the config refuses them, or the backend asked for does.
    """
    recipe = {name[6:]: value for name, value in values.items() if name.startswith("train.")}
    mixer = {name: value for name, value in values.items() if not name.startswith("train.")}
    config = configure(arm.variant, {**resolved(arm.mixer), **mixer})
    train = build(TrainConfig, {**resolved(run.train), **recipe, "seed": seed}, where="train")
    # A backend may serve one choice of a mixer and not another; hybrids keep what was chosen for each of their parts.
    if mixer and "," not in train.backend:
        model = run.model
        dims = Dims(
            model_dim=model.model_dim, num_heads=model.num_heads, num_layers=model.num_layers, length=run.data.length
        )
        chosen = choose_backend(
            arm.variant.spec, backend, device=train.device, dtype=train.dtype, dims=dims, config=config
        )
        train = dataclasses.replace(train, backend=chosen)
    return dataclasses.replace(run, mixer=identity(config), train=train)


def space_of(arm: Arm, run: RunConfig, words: Mapping[str, str], *, backend: str = "auto") -> Space:
    """The space of an arm: knobs it does not set itself, narrowed, widened, pinned and added to by `--space`.

    Args:
        arm, run: the arm and its run with the defaults.
        words: `field` to `low:high`, `value` or `a,b,c`; words for other variants are passed over.
        backend: as asked for.

    Raises:
        UsageError: a word has an empty range or a value the field does not take.
    """
    dims, pins = [], {}
    asked = {name: value for field, value in words.items() for name in _names(field, arm)}
    for name, setting in _fields(arm).items():
        if name in arm.fields or name in arm.variant.pinned:
            continue
        if name in asked:
            found = _from_word(name, setting, asked[name])
            if isinstance(found, Dim):
                dims.append(found)
            else:
                pins[name] = found[0]
        elif setting.role.kind == "knob":
            dims.append(_dim(name, setting, setting.role.low or 0.0, setting.role.high or 0.0))
    return Space(arm=arm, run=run, dims=tuple(dims), pins=pins, backend=backend)


def words_of(texts: Sequence[str]) -> dict[str, str]:
    """`--space` as a mapping from field to its word.

    Raises:
        UsageError: one is no `field=...`, or comes twice.
    """
    words: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise UsageError(f"--space {text}: write field=low:high, field=value or field=a,b,c")
        if name in words:
            raise UsageError(f"--space names {name} twice")
        words[name] = value
    return words


def check_words(words: Mapping[str, str], arms: Sequence[Arm]) -> None:
    """Every word must mean a field that one of the arms can search.

    Raises:
        UsageError: one does not.
    """
    for name in words:
        if not any(_names(name, arm) for arm in arms):
            raise _not_searched(name, arms)
    for arm in arms:
        meant = [own for name in words for own in _names(name, arm)]
        twice = [own for own in meant if meant.count(own) > 1]
        if twice:
            raise UsageError(f"--space names {twice[0]} of {arm.label} twice")


def _not_searched(name: str, arms: Sequence[Arm]) -> UsageError:
    configs: list[Any] = [TrainConfig, *(arm.variant.spec.Config for arm in arms)]
    if any(name.rpartition(".")[2] in settings(config) for config in configs):
        return UsageError(f"--space {name}: a size is the same in all trials; set it by --set, or in the arm itself")
    return unknown("--space field", name, dict.fromkeys(field for arm in arms for field in _fields(arm)))


def _fields(arm: Arm) -> dict[str, Setting]:
    """What may be searched, by the name an arm writes: the recipe's knobs; the mixer's knobs, choices and switches."""
    recipe = {f"train.{n}": s for n, s in settings(TrainConfig).items() if s.role.kind == "knob"}
    mixer = {n: s for n, s in settings(arm.variant.spec.Config).items() if s.role.kind != "size"}
    return {**recipe, **mixer}


def _names(word: str, arm: Arm) -> list[str]:
    """The fields of an arm that a word of `--space` means: `train.x`, `<variant>.x`, or `x` alone."""
    section, _, inner = word.rpartition(".")
    known = _fields(arm)
    if section == arm.variant.spec.name:
        return [inner] if inner in known else []
    if section:
        return [word] if word in known else []
    return [name for name in (word, f"train.{word}") if name in known][:1]


def _from_word(name: str, setting: Setting, word: str) -> Dim | tuple[Any]:
    where, _, _ = name.rpartition(".")
    where = where or "--space"
    if ":" in word:
        ends = [_number(name, text) for text in word.split(":")]
        if len(ends) != 2 or not set(setting.types) & {int, float} or setting.role.kind != "knob":
            raise UsageError(f"--space {name}={word}: low:high is for knobs; {setting.name} takes a list, a,b,c")
        low, high = (check(setting, end, where=where) for end in ends)
        if not low < high:
            raise UsageError(f"--space {name}={word}: an empty range; write low:high with low below high")
        if setting.role.log and low <= 0:
            raise UsageError(f"--space {name}={word}: the scale is logarithmic, so low must be above 0")
        return _dim(name, setting, low, high)
    options = [check(setting, text, where=where) for text in word.split(",")]
    if len(options) == 1:
        return (options[0],)
    if len(set(options)) != len(options):
        raise UsageError(f"--space {name}={word}: names a value twice")
    return Dim(name=name, options=tuple(options))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--space {name}: {text!r} is not a number; write low:high") from None


def _dim(name: str, setting: Setting, low: float, high: float) -> Dim:
    role: Role = setting.role
    if not (math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not role.log)):
        scale = " on a log scale, low above 0" if role.log else ""
        raise UsageError(
            f"the range of {name} is {low:g} to {high:g}: allowed are finite numbers, low below high{scale}"
        )
    walls = (role.least is not None and low <= role.least, role.most is not None and high >= role.most)
    return Dim(name=name, low=low, high=high, log=role.log, whole=float not in setting.types, walls=walls)


def text_of(arm: Arm, values: Mapping[str, Any]) -> str:
    """The arm with these settings as the command line writes it."""
    fields = {**arm.fields, **{name: shown(value) for name, value in values.items()}}
    inside = ",".join(f"{name}={value}" for name, value in fields.items())
    return f"{arm.name}[{inside}]" if inside else arm.name
