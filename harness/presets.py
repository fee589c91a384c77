"""Sizes as data: each preset is a set of fields over the sections' defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Settings = Mapping[str, Mapping[str, Any]]

PRESETS: dict[str, Settings] = {
    # A quarter of a million tokens, a few seconds a run on one core: the defaults of the sections.
    "quick": {},
    # One layer, one head, and next to no MLP: a wide one learns to overrule the head where it is idle, and the sink
    # comes later. Small embeddings, a rate that stays up and strong decay bring it sooner: within the 300 steps.
    "backcopy": {
        "model": {"num_layers": 1, "num_heads": 1, "mlp_dim": 1, "init_std": 0.125},
        "train": {"steps": 300, "batch_size": 64, "learning_rate": 3e-3, "final_rate": 1.0, "weight_decay": 1.0},
    },
    # What a CPU settles: eight times the tokens of `quick`, past the steep part of the curve in a minute on one core.
    "study": {
        "train": {"steps": 1920, "learning_rate": 5e-3},
        "data": {"report_tokens": 131_072, "curve_tokens": 16_384, "curve_points": 12},
    },
    # A larger model: 2.5 million tokens, 0.9 million parameters.
    "small": {
        "model": {"num_layers": 4, "model_dim": 128, "num_heads": 4, "mlp_dim": 352},
        "train": {"steps": 600, "batch_size": 16, "learning_rate": 5e-3},
        "data": {"length": 256, "report_tokens": 131_072, "curve_tokens": 16_384, "curve_points": 12},
    },
    # One GPU for an hour: 2.6 thousand million tokens would be ten of these.
    "base": {
        "model": {"num_layers": 12, "model_dim": 512, "num_heads": 8, "mlp_dim": 1408},
        "train": {"steps": 4000, "batch_size": 64, "learning_rate": 1e-3, "dtype": "bfloat16", "warmup": 0.05},
        "data": {"length": 1024, "report_tokens": 1_048_576, "curve_tokens": 65_536, "curve_points": 20},
    },
    # Shape and recipe of the published runs as far as they are public: 10 thousand million tokens.
    "paper-340m": {
        "model": {"num_layers": 24, "model_dim": 1024, "num_heads": 16, "mlp_dim": 2816, "init_std": 0.02},
        "train": {
            "steps": 20_480,
            "batch_size": 256,
            "accumulate": 8,
            "learning_rate": 3e-4,
            "warmup": 0.025,
            "weight_decay": 0.01,
            "dtype": "bfloat16",
        },
        "data": {
            "tokenizer": "bpe:32000",
            "length": 2048,
            "report_tokens": 4_194_304,
            "curve_tokens": 262_144,
            "curve_points": 40,
        },
    },
}
