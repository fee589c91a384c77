"""Every variant and every declared experiment there is: found by folder, or loaded from a user's file."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import ablations
import variants
from harness.declare import Experiment
from harness.errors import BackendError, UsageError, unknown
from harness.fields import build, settings
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
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"variant file {path}: {error.strerror or error}") from error
    module = _import(path, hashlib.sha256(source).hexdigest())
    spec = getattr(module, "SPEC", None)
    if not isinstance(spec, MixerSpec):
        raise UsageError(f"{path} exports no SPEC; add: SPEC = MixerSpec(name=..., Config=Config, Layer=Layer)")
    settings(spec.Config)
    return Variant(key=str(path), spec=spec, doc=module.__doc__ or "", file_hash=_hash(path))


def _import(path: Path, digest: str) -> ModuleType:
    name = f"_variant_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UsageError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(found)
    _forget_strangers(path.parent)
    sys.path.insert(0, str(path.parent))
    # dataclasses with postponed annotations look their module up while the class is being made.
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise UsageError(f"{path} fails on import: {type(error).__name__}: {error}{_line(error, path)}") from error
    finally:
        sys.path.remove(str(path.parent))
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
    return module


def _line(error: BaseException, path: Path) -> str:
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""


def _neighbours(folder: Path) -> dict[str, Path]:
    loaded = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    files = {name: Path(file) for name, file in loaded.items() if file and not name.startswith("_variant_")}
    return {
        name: file
        for name, file in files.items()
        if file.is_relative_to(folder)
        and not name.startswith(("harness", "variants", "ablations"))
        and name != "__main__"
        and "site-packages" not in file.parts
    }


def _forget_strangers(folder: Path) -> None:
    # Two files in two folders may each have a neighbour `utils`: the first one's must not serve the second.
    for file in folder.glob("*.py"):
        module = sys.modules.get(file.stem)
        origin = getattr(module, "__file__", None)
        if (
            origin
            and Path(origin).resolve() != file
            and any(
                Path(origin).parent == Path(path).parent
                for name, m in sys.modules.items()
                if name.startswith("_variant_") and (path := getattr(m, "__file__", None))
            )
        ):
            del sys.modules[file.stem]


def _hash(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes())
    for name, file in sorted(_neighbours(path.parent).items()):
        if file != path and file.suffix == ".py":
            digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


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


def backends_here(spec: MixerSpec, device: str) -> list[tuple[Backend, str | None]]:
    """Each backend with the reason why it cannot run on this device kind, None where it can."""
    dtypes = ("float32", "bfloat16")
    return [
        (
            backend,
            min(
                (backend.refuses(device, dtype) for dtype in dtypes if dtype in backend.dtypes),
                key=lambda reason: reason is not None,
                default="takes no dtype",
            ),
        )
        for backend in spec.backends
    ]
