"""Where a run took place: versions, hardware, commit, and a hash of the code that decides its numbers."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
"""The folder that holds `harness/` and `variants/`."""

DECIDES: Final = ("spec.py", "fields.py", "config.py", "model.py", "ops", "data", "train")
"""Files and folders of `harness/` that decide a run's numbers; tables and the command line do not."""

_CODE: Final = ("harness", "variants", "ablations", "run.py", "pyproject.toml")


def describe() -> dict[str, Any]:
    """Versions and hardware of this machine, as every record keeps them; nothing that names its owner.

    Returns:
        `python`, `torch`, `numpy` (versions; None where not installed), `platform` (system, architecture, C
        library), `cpu` (its model), `cores` (usable by this process), `memory_bytes`, and `gpu` (names, or
        None where the NVIDIA driver shows none).
    """
    return {
        "python": platform.python_version(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "platform": " ".join((platform.system(), platform.machine(), *platform.libc_ver())).strip(),
        "cpu": _cpu(),
        "cores": _cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": _gpu(),
    }


def machine() -> str:
    """A short fingerprint of the hardware: timings of two machines never share a key.

    Returns:
        Eight hexadecimal digits over architecture, model and number of cores, and GPU. Memory stays out: what
        a kernel reserves of it changes from boot to boot.
    """
    parts = (platform.machine(), _cpu(), str(_cores()), _gpu() or "")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def commit() -> dict[str, Any]:
    """The commit of the code as it was when this was first asked.

    Returns:
        `commit`, the full hash, and `dirty`, whether code differs from it; both None without a repository.
    """
    return dict(_commit(ROOT))


def code_hash(variant: str, pattern: str | None = None) -> str:
    """Hash of the code that decides a number: when it changes, older rows of a table are stale.

    What this process has asked for once stays as it was, as the code that it has imported does.

    Args:
        variant: name of a shipped variant, or path of a user's file.
        pattern: the model's pattern of variants, where it has one.

    Returns:
        64 hexadecimal digits, the SHA-256 over names and contents of `DECIDES` and of the files of its variants.

    Raises:
        OSError: one of the files cannot be read.
    """
    # A user's file is imported anew when it changes.
    theirs = variant.endswith(".py")
    own = Path(variant).read_bytes() if theirs else _once(ROOT / "variants" / f"{variant}.py")
    others = [ROOT / "variants" / f"{name}.py" for name in (pattern or "").split(",") if name not in ("", variant)]
    # A user's file stands in its pattern by a name that only importing it tells.
    return _hash(ROOT / "harness", own, *(_once(file) for file in dict.fromkeys(others) if file.exists()))


def _hash(harness: Path, *variants: bytes) -> str:
    files = [file for name in DECIDES for file in _sources(harness / name)]
    parts = [(file.relative_to(harness).as_posix(), _once(file)) for file in files]
    parts += [("variant", content) for content in variants]
    digest = hashlib.sha256()
    for name, content in parts:
        # A checkout may turn line ends into CRLF; the code is the same.
        content = content.replace(b"\r\n", b"\n")
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


@functools.cache
def _once(file: Path) -> bytes:
    return file.read_bytes()


def _sources(path: Path) -> list[Path]:
    return [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))


def _version(package: str) -> str | None:
    # Importing torch takes seconds, and most of what asks for its version never needs torch itself.
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    named = next(models, "") or _output(("sysctl", "-n", "machdep.cpu.brand_string"))
    return named or platform.processor() or platform.machine()


@functools.cache
def _gpu() -> str | None:
    names = _output(("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    if not names:
        return None
    counts = Counter(line.strip() for line in names.splitlines())
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in sorted(counts.items()))


@functools.cache
def _commit(root: Path) -> dict[str, Any]:
    unknown = {"commit": None, "dirty": None}
    top = _git(root, "rev-parse", "--show-toplevel")
    # Code installed somewhere below another repository has no commit of its own.
    if not top or Path(top).resolve() != root:
        return unknown
    head = _git(root, "rev-parse", "--verify", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", *_CODE)
    return {"commit": head, "dirty": bool(changes)} if head and changes is not None else unknown


def _git(root: Path, *arguments: str) -> str | None:
    # Inside a hook, GIT_DIR and its kin name the repository of the hook.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return _output(("git", "--no-optional-locks", "-C", str(root), *arguments), env=clean)


def _output(command: tuple[str, ...], env: dict[str, str] | None = None) -> str | None:
    """What a command printed, None where it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, env=env)
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return done.stdout.strip()
