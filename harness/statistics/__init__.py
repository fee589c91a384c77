"""Is a difference between two arms more than seed noise? One rule, and the noise it has to beat.

Reading order: `noise` (how far apart two means must lie) -> `paired` (the rule, on many tables at once) ->
`judgement` (one table: names, failures, verdicts). `signflip` is a second opinion that assumes less; `floor` is what
a baseline and its twin say of both.
"""

from __future__ import annotations

from harness.statistics.floor import NoiseFloor, NullTables, noise_floor
from harness.statistics.judgement import Interval, Judgement, judge
from harness.statistics.noise import LEVEL, MARGIN, resolvable_difference
from harness.statistics.signflip import sign_flip_p

__all__ = [
    "LEVEL",
    "MARGIN",
    "Interval",
    "Judgement",
    "NoiseFloor",
    "NullTables",
    "judge",
    "noise_floor",
    "resolvable_difference",
    "sign_flip_p",
]
