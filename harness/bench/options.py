"""What a benchmark is asked to time, checked before anything is timed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.errors import UsageError, unknown

PARTS = ("cores", "blocks", "step", "decode", "workers")
DTYPES = ("float32", "bfloat16")
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is timed.

    Args:
        parts: some of `PARTS`; all unless given.
        lengths: tokens of the cores; three lengths unless given.
        dtypes: of cores and blocks; float32, and bfloat16 too on a GPU, unless given.
        device: `cpu` or `cuda`.
        rounds: times each case is called that is not a reference.

    Raises:
        UsageError: one of them cannot be timed.
    """

    parts: Sequence[str] = ()
    lengths: Sequence[int] = ()
    dtypes: Sequence[str] = ()
    device: str = "cpu"
    rounds: int = 7

    def __post_init__(self) -> None:
        for kind, asked, allowed in (
            ("part of bench", self.parts, PARTS),
            ("dtype", self.dtypes, DTYPES),
            ("device", (self.device,), DEVICES),
        ):
            for word in asked:
                if word not in allowed:
                    raise unknown(kind, word, allowed)
        for length in self.lengths:
            if length < 1:
                raise UsageError(f"--lengths {length}: allowed is a whole number of at least 1")
        for flag, given, owners in (
            ("--lengths", self.lengths, ("cores",)),
            ("--dtypes", self.dtypes, ("cores", "blocks")),
        ):
            if given and self.parts and not set(owners) & set(self.parts):
                raise UsageError(f"{flag} belongs to {' and '.join(owners)}; leave it out of {', '.join(self.parts)}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UsageError("--device cuda: torch sees no CUDA device here; take --device cpu")
        if self.parts and set(self.parts) <= {"workers"} and (reason := no_workers(self.device)):
            raise UsageError(f"workers: {reason}")


def no_workers(device: str) -> str | None:
    """Why two ways to share the cores cannot be compared here, or None."""
    if device != "cpu":
        return f"measured on the CPU, not on {device}"
    return None if len(os.sched_getaffinity(0)) > 1 else "takes two cores, and there is one"


def asked(*, parts: Sequence[str], lengths: Sequence[str] | None, dtypes: Sequence[str] | None, device: str) -> Options:
    """The options that words of a command line ask for.

    Args:
        parts, device: as they stand.
        lengths, dtypes: what follows the flag; None where it was not given.

    Raises:
        UsageError: a flag with nothing after it, a length that is no whole number, and what `Options` refuses.
    """
    for flag, words, example in (("--lengths", lengths, "256 1024"), ("--dtypes", dtypes, "float32")):
        if words is not None and not words:
            raise UsageError(f"{flag}: nothing follows it; write e.g. {flag} {example}, or leave it out")
    return Options(
        parts=parts,
        lengths=[_whole("--lengths", word) for word in lengths or ()],
        dtypes=dtypes or (),
        device=device,
    )


def _whole(flag: str, word: str) -> int:
    try:
        return int(word)
    except ValueError as error:
        raise UsageError(f"{flag} {word}: allowed is a whole number of at least 1") from error
