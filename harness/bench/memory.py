"""Peak memory of one call, beyond what it was given."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import torch

from harness.bench.case import Case
from harness.execute.process import in_a_fork


def prepare() -> None:
    """Load what the first gradient of a process loads, once for all children: it takes seconds."""
    from torch.fx.experimental import symbolic_shapes  # noqa: F401


def peak_memory(case: Case, device: str) -> int | None:
    """Bytes that one call of a case needs at its peak, its results included and its inputs not.

    On a CPU it is called in a forked child, where memory that was freed before serves nothing.

    Returns:
        None where the system does not tell, or the call fails.
    """
    if device == "cuda":
        function = case.make()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        function()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)
    if not Path("/proc/self/clear_refs").exists():
        return None
    return _in_a_child(case)


def _in_a_child(case: Case) -> int | None:
    gc.collect()
    return in_a_fork(lambda: _here(case))


def _here(case: Case) -> int:
    function = case.make()
    # The first product and the first gradient of a process load code and buffers that belong to no case.
    warm = torch.randn(256, 256, requires_grad=True)
    torch.autograd.grad(warm.matmul(warm).exp().sum(), warm)
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    function()
    return max(0, _status("VmHWM") - before)


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
