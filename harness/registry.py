"""Every variant and every declared experiment there is: found by folder, or loaded from a user's file."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import ablations
import variants
from harness import errors
from harness.declare import Experiment
from harness.errors import BackendError, UsageError, unknown
from harness.fields import build, check, settings
from harness.spec import Backend, Dims, MixerSpec


@dataclass(frozen=True)
class Variant:
    """A mixer as the harness found it.

    Args:
        key: name of a shipped variant, or absolute path of a user's file; what a run's config holds.
        spec: what the file exports.
        doc: docstring of the file.
        pinned: fields that an alias fixes.
        file_hash: SHA-256 of a user's file and of what it imports beside it; none for a shipped variant.
    """

    key: str
    spec: MixerSpec
    doc: str
    pinned: Mapping[str, Any] = field(default_factory=dict)
    file_hash: str | None = None


@functools.cache
def shipped() -> dict[str, Variant]:
    """The variants of the folder `variants/`, by name, in the order of their names."""
    found = {}
    for info in pkgutil.iter_modules(variants.__path__):
        module = importlib.import_module(f"variants.{info.name}")
        found[info.name] = Variant(key=info.name, spec=module.SPEC, doc=module.__doc__ or "")
    return found


@functools.cache
def experiments() -> dict[str, Experiment]:
    """The declared experiments of the folder `ablations/`, by name."""
    modules = (importlib.import_module(f"ablations.{info.name}") for info in pkgutil.iter_modules(ablations.__path__))
    return {module.__name__.rpartition(".")[2]: module.EXPERIMENT for module in modules}


def find(name: str) -> Variant:
    """The variant of that name, alias or path.

    Args:
        name: `softmax`, `flash`, or a path that ends in .py.

    Raises:
        UsageError: there is none, or the file is no variant; the message says why.
    """
    if name.endswith(".py"):
        return load(Path(name))
    found = shipped()
    if name in found:
        return found[name]
    aliases = {alias: (variant, pinned) for variant in found.values() for alias, pinned in variant.spec.aliases.items()}
    if name not in aliases:
        raise unknown("variant", name, [*found, *aliases])
    variant, pinned = aliases[name]
    return Variant(key=variant.key, spec=variant.spec, doc=variant.doc, pinned=pinned)


def load(path: Path) -> Variant:
    """A user's variant; the modules it imports from its own folder count as a part of it.

    Raises:
        UsageError: the file cannot be read, fails on import, or exports no usable SPEC.
    """
    path = path.resolve()
    parts = closure(path)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(str(part.relative_to(path.parent)).encode() * (part != path) + b"\0" + part.read_bytes())
    module = _import(path, parts, digest.hexdigest())
    spec = getattr(module, "SPEC", None)
    if not isinstance(spec, MixerSpec):
        raise UsageError(f"{path} exports no SPEC; add: SPEC = MixerSpec(name=..., Config=Config, Layer=Layer)")
    try:
        for setting in settings(spec.Config).values():
            check(setting, setting.default, where="Config")
        if not all(isinstance(backend, Backend) for backend in spec.backends):
            raise UsageError("SPEC.backends must hold Backend(...) alone")
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return Variant(key=str(path), spec=spec, doc=module.__doc__ or "", file_hash=digest.hexdigest())


def closure(path: Path) -> list[Path]:
    """A file and all that it imports from its own folder, directly or not: the file first, then by path.

    The imports are read from the source, those inside functions too, so that neither the order of loading nor a
    late import changes what belongs to a mixer.

    Args:
        path: a Python file.

    Raises:
        UsageError: the file cannot be read.
    """
    found: dict[Path, None] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        try:
            source = file.read_bytes()
        except OSError as error:
            raise UsageError(f"variant file {file}: {error.strerror or error}") from error
        found[file] = None
        waiting += [near for name in _imported(source) for near in _beside(path.parent, name)]
    return [path, *sorted(file for file in found if file != path)]


def _imported(source: bytes) -> set[str]:
    """Top-level names that a source imports; none of one that is no Python, whose import will say so."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _beside(folder: Path, name: str) -> list[Path]:
    """Files of a module or package of that name in the folder; the harness' own rooms are no neighbours."""
    own = [Path(file).resolve() for file in (variants.__file__, ablations.__file__, errors.__file__) if file]
    if (folder / name) in {file.parent for file in own}:
        return []
    if (folder / f"{name}.py").is_file():
        return [folder / f"{name}.py"]
    return sorted((folder / name).rglob("*.py")) if (folder / name / "__init__.py").is_file() else []


def _import(path: Path, parts: list[Path], digest: str) -> ModuleType:
    # Named by place and content: a copy elsewhere has neighbours of its own.
    name = f"_variant_{hashlib.sha256(f'{path} {digest}'.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UsageError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(found)
    _forget_strangers(path.parent, parts)
    sys.path.insert(0, str(path.parent))
    # dataclasses with postponed annotations look their module up while the class is being made.
    sys.modules[name] = module
    try:
        # What a file prints must not get into the JSON of a command.
        with contextlib.redirect_stdout(sys.stderr), _staying():
            found.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise UsageError(f"{path} fails on import: {_said(error, path)}") from error
    finally:
        sys.path.remove(str(path.parent))
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
    return module


@contextlib.contextmanager
def _staying() -> Iterator[None]:
    """Makes `os._exit`, which would end the command without a word, an exception; not in a process forked meanwhile."""
    leave, here = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != here:
            leave(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave


def _said(error: BaseException, path: Path) -> str:
    line = error.lineno if isinstance(error, SyntaxError) else None
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{type(error).__name__}: {text}" + (f" (line {line})" if line else "")


def _forget_strangers(folder: Path, parts: list[Path]) -> None:
    # Two files in two folders may each have a neighbour `utils`: the first one's must not serve the second.
    for name in {part.relative_to(folder).parts[0].removesuffix(".py") for part in parts[1:]}:
        for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            origin = getattr(sys.modules[loaded], "__file__", None)
            if origin is None or not Path(origin).resolve().is_relative_to(folder):
                del sys.modules[loaded]


def configure(variant: Variant, values: Mapping[str, Any]) -> Any:
    """The variant's config with some values set.

    Raises:
        UsageError: an unknown field or a value it cannot take.
    """
    return build(variant.spec.Config, values, where=variant.spec.name)


def choose_backend(spec: MixerSpec, asked: str, *, device: str, dtype: str, dims: Dims, config: Any) -> str:
    """The backend a run will use.

    Args:
        spec: the mixer.
        asked: its name, or `auto` for the first in the spec's order that does not refuse.
        device, dtype: where and in what precision it trains.
        dims, config: the layer it serves.

    Returns:
        Its name; `own` for a mixer without backends.

    Raises:
        UsageError: no backend of that name.
        BackendError: the one asked for, or each of them, refuses; the message carries the reasons.
    """
    if not spec.backends:
        if asked not in ("auto", "own"):
            raise unknown(f"backend of {spec.name}", asked, ["own"])
        return "own"
    names = [backend.name for backend in spec.backends]
    if asked != "auto" and asked not in names:
        raise unknown(f"backend of {spec.name}", asked, [*names, "auto"])
    refusals = []
    for backend in spec.backends:
        if asked in ("auto", backend.name):
            reason = backend.refuses(device, dtype, dims=dims, config=config)
            if reason is None:
                return backend.name
            refusals.append(f"{spec.name} through {backend.name}: {reason}")
    raise BackendError("; ".join(refusals) + "; take backend=auto" * (asked != "auto"))


def core_of(spec: MixerSpec, backend: str) -> Any:
    """The function behind a backend's name, None for a mixer without backends."""
    return None if backend == "own" else spec.backend(backend).run


def backends_here(spec: MixerSpec, device: str, dims: Dims) -> list[tuple[Backend, bool, str | None]]:
    """Each backend, whether this machine can run it, and what it refuses: here, or at the variant's defaults.

    Args:
        spec: the mixer.
        device: kind of device.
        dims: of the model that the defaults are asked for.
    """
    found: list[tuple[Backend, bool, str | None]] = []
    for backend in spec.backends:
        refusals = [backend.refuses(device, dtype) for dtype in backend.dtypes]
        here = None in refusals
        narrow = backend.supports(dims, spec.Config()) if here and backend.supports is not None else None
        found.append((backend, here, narrow if here else refusals[0]))
    return found
