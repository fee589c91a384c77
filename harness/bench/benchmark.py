"""The whole benchmark: peaks of memory first, then the machine's peak, then everything in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness import environment
from harness.bench import blocks, clock, cores, decode, memory, peers, steps, workers
from harness.bench.case import Group, row
from harness.bench.layers import variants
from harness.contract import examine
from harness.errors import UsageError, unknown

PARTS = ("cores", "blocks", "step", "decode", "workers")
CLAIMS = ("values", "gradients", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is timed.

    Args:
        parts: some of `PARTS`; all unless given.
        lengths: tokens of the cores; three lengths unless given.
        dtypes: of cores and blocks; float32, and bfloat16 too on a GPU, unless given.
        device: `cpu` or `cuda`.
        rounds: times each case is called.
    """

    parts: Sequence[str] = ()
    lengths: Sequence[int] = ()
    dtypes: Sequence[str] = ()
    device: str = "cpu"
    rounds: int = 7

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in PARTS:
                raise unknown("part of bench", part, PARTS)
        for dtype in self.dtypes:
            if dtype not in ("float32", "bfloat16"):
                raise unknown("dtype", dtype, ("float32", "bfloat16"))
        if self.device not in ("cpu", "cuda"):
            raise unknown("device", self.device, ("cpu", "cuda"))
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UsageError("--device cuda: torch sees no CUDA device here; take --device cpu")
        for length in self.lengths:
            if length < 1:
                raise UsageError(f"--lengths {length}: allowed is a whole number of at least 1")


def bench(options: Options, notify: Callable[[str], None]) -> dict[str, Any]:
    """Measure, and give the result as it is written to disk.

    Args:
        options: what is timed.
        notify: told of each stage.

    Returns:
        `machine`: where it ran, threads, peak FLOP/s by dtype, what was left out and why, which backends failed
        the contract; and `rows`.
    """
    threads = torch.get_num_threads()
    # A child waits for ever for threads that its parent had: none is started before the last fork.
    torch.set_num_threads(1)
    try:
        found = _groups(options, threads)
        peaks = _peaks(found, options, notify)
    finally:
        torch.set_num_threads(threads)
    notify("the peak of a matrix product")
    kinds = {case.dtype for group in found for case in group.cases}
    flops = {dtype: clock.peak_flops(dtype, options.device) for dtype in sorted(kinds)}
    notify("whether every backend is right")
    machine = {**_machine(options), "matmul_flops": flops, "wrong": wrong(options.device)}
    rows: list[dict[str, Any]] = []
    for group, used in zip(found, peaks, strict=True):
        notify(f"{_about(group)}")
        rows += _rows(group, used, flops, options)
    return {"machine": machine, "rows": rows}


def _peaks(found: Sequence[Group], options: Options, notify: Callable[[str], None]) -> list[list[int | None]]:
    memory.prepare()
    peaks = []
    for group in found:
        notify(f"memory of {_about(group)}")
        peaks.append([_memory(group, index, options) for index in range(len(group.cases))])
    return peaks


def _groups(options: Options, threads: int) -> list[Group]:
    device = options.device
    parts = options.parts or PARTS
    dtypes = list(options.dtypes) or (["float32", "bfloat16"] if device == "cuda" else ["float32"])
    found: list[Group] = []
    if "cores" in parts:
        found += cores.groups(options.lengths, dtypes, device)
    if "blocks" in parts:
        found += blocks.groups(dtypes, device)
    if "step" in parts:
        found += steps.groups(device, threads=threads)
    if "decode" in parts:
        found += decode.groups(device)
    if "workers" in parts and device == "cpu" and len(os.sched_getaffinity(0)) > 1:
        found += workers.groups()
    return found


def _about(group: Group) -> str:
    case = group.cases[0]
    return f"{case.part}, {case.shape}, {case.dtype}"


def _memory(group: Group, index: int, options: Options) -> int | None:
    case = group.cases[index]
    # A comparison runs in processes of its own, a decode step makes next to nothing.
    return None if case.part in ("compare", "decode") else memory.peak_memory(case, options.device)


def _rows(group: Group, peaks: list[int | None], flops: dict[str, float], options: Options) -> list[dict[str, Any]]:
    functions = {index: case.make() for index, case in enumerate(group.cases) if case.timed}
    times = clock.interleaved(functions, rounds=options.rounds, device=options.device)
    return [
        row(
            group.cases[one],
            group.cases[two],
            times=times,
            keys=(one, two),
            memory=peaks[one],
            peak=flops[group.cases[one].dtype],
        )
        for one, two in group.pairs
    ]


def _machine(options: Options) -> dict[str, Any]:
    left_out = {name: reason for name in peers.NAMES if (reason := peers.missing(name))}
    return {
        "key": environment.machine(),
        **environment.describe(),
        **environment.commit(),
        "device": options.device,
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "left_out": left_out,
    }


def wrong(device: str) -> list[str]:
    """Backends whose outputs or gradients are not those of the reference here, a line each."""
    found = []
    for spec in variants().values():
        for finding in examine(spec, spec.Config(), claims=CLAIMS, device=device):
            if finding.passed is False:
                found.append(f"{spec.name} {finding.backend}, {finding.name}: {finding.detail}")
    return found
