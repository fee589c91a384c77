"""Maths and modules that two variants share; a variant imports this room and `spec`, nothing else."""

from harness.ops.elastic import elastic_attention
from harness.ops.fused import sdpa
from harness.ops.masks import at_least_float32, repeat_heads, scores, softmax_weights, visible, visible_count
from harness.ops.positions import alibi_slopes, distance_bias, rotate
from harness.ops.projected import KeyValueCache, ScoreLayer

__all__ = [
    "KeyValueCache",
    "ScoreLayer",
    "alibi_slopes",
    "at_least_float32",
    "distance_bias",
    "elastic_attention",
    "repeat_heads",
    "rotate",
    "scores",
    "sdpa",
    "softmax_weights",
    "visible",
    "visible_count",
]
