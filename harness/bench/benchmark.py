"""The whole benchmark: peaks of memory first, then the machine's peak, then everything in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness import environment
from harness.bench import blocks, clock, cores, decode, memory, peers, steps, workers
from harness.bench.case import Group, row
from harness.bench.layers import variants
from harness.bench.options import PARTS, Options, no_workers
from harness.contract import examine
from harness.spec import Backend
from harness.train.memory import keep_freed_memory

CLAIMS = ("values", "gradients", "bfloat16")


def bench(options: Options, notify: Callable[[str], None]) -> dict[str, Any]:
    """Measure, and give the result as it is written to disk.

    Args:
        options: what is timed.
        notify: told of each stage, with the time so far and how many stages there are.

    Returns:
        `machine`: where it ran, threads, peak FLOP/s by dtype, what was left out and why, which backends kept
        the contract and which broke it, seconds in all; and `rows`.
    """
    threads, started = torch.get_num_threads(), time.monotonic()
    # A child waits for ever for threads that its parent had: none is started before the last fork.
    torch.set_num_threads(1)
    try:
        found = _groups(options, threads)
        told = _numbered(notify, started, 2 + sum(1 + _weighed(group) for group in found))
        peaks = _peaks(found, options, told)
    finally:
        torch.set_num_threads(threads)
    # Memory was weighed in children; what is timed runs as a training process does.
    keep_freed_memory()
    told("the peak of a matrix product")
    kinds = {case.dtype for group in found for case in group.cases}
    flops = {dtype: clock.peak_flops(dtype, options.device) for dtype in sorted(kinds)}
    told("whether every backend is right")
    machine = {**_machine(options), "matmul_flops": flops, **examined(options.device)}
    rows: list[dict[str, Any]] = []
    for group, used in zip(found, peaks, strict=True):
        told(f"time of {_about(group)}")
        rows += _rows(group, used, flops, options)
    return {"machine": {**machine, "seconds": round(time.monotonic() - started, 1)}, "rows": rows}


def _numbered(notify: Callable[[str], None], started: float, stages: int) -> Callable[[str], None]:
    done = iter(range(1, stages + 1))

    def told(stage: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - started), 60)
        notify(f"{minutes}:{seconds:02d}  {next(done)} of {stages}  {stage}")

    return told


def _peaks(found: Sequence[Group], options: Options, told: Callable[[str], None]) -> list[list[int | None]]:
    memory.prepare()
    peaks: list[list[int | None]] = []
    for group in found:
        if _weighed(group):
            told(f"memory of {_about(group)}")
            peaks.append([memory.peak_memory(case, options.device) for case in group.cases])
        else:
            peaks.append([None] * len(group.cases))
    return peaks


def _weighed(group: Group) -> bool:
    # A comparison runs in processes of its own, a decode step makes next to nothing.
    return group.cases[0].part not in ("compare", "decode")


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
    if "workers" in parts and no_workers(device) is None:
        found += workers.groups()
    return found


def _about(group: Group) -> str:
    case = group.cases[0]
    return f"{case.part} of {case.name}" if case.part == "decode" else f"{case.part}, {case.shape}, {case.dtype}"


def _rows(group: Group, peaks: list[int | None], flops: dict[str, float], options: Options) -> list[dict[str, Any]]:
    timed = {index: case for index, case in enumerate(group.cases) if case.timed}
    rounds = {index: min(options.rounds, case.most_rounds or options.rounds) for index, case in timed.items()}
    functions = {index: case.make() for index, case in timed.items()}
    times = clock.interleaved(functions, rounds=rounds, device=options.device)
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
    return {
        "key": environment.machine(),
        **environment.describe(),
        **environment.commit(),
        "device": options.device,
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "rounds_of_references": min(options.rounds, cores.REFERENCE_ROUNDS),
        "left_out": _left_out(options),
    }


def _left_out(options: Options) -> dict[str, str]:
    device, parts = options.device, options.parts or PARTS
    reasons = {name: peers.missing(name) for name in peers.NAMES}
    for spec in variants().values():
        for backend in spec.backends:
            # What is made for another device is not missed here.
            if device in backend.forward:
                reasons[f"{spec.name} {backend.name}"] = _refusal(backend, device)
    if "step" in parts and not steps.narrow(device):
        reasons["bfloat16 step"] = f"this {device} has no instructions for it"
    if "workers" in parts:
        reasons["workers"] = no_workers(device)
    return {name: reason for name, reason in reasons.items() if reason}


def _refusal(backend: Backend, device: str) -> str | None:
    reasons = [backend.refuses(device, dtype) for dtype in backend.dtypes]
    return None if None in reasons else reasons[0]


def examined(device: str) -> dict[str, list[str]]:
    """Whether outputs and gradients of every backend here are those of the reference.

    Returns:
        `right`: variant and backend of those that kept each claim that could be tried; `wrong`: a line for each
        claim that one broke.
    """
    kept: dict[str, bool] = {}
    wrong = []
    for spec in variants().values():
        for finding in examine(spec, spec.Config(), claims=CLAIMS, device=device):
            name = f"{spec.name} {finding.backend}"
            if finding.passed is not None:
                kept[name] = kept.get(name, True) and finding.passed
            if finding.passed is False:
                wrong.append(f"{name}, {finding.name}: {finding.detail}")
    return {"right": [name for name, held in kept.items() if held], "wrong": wrong}
