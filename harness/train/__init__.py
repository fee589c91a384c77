"""One training loop for every mixer; it takes callbacks and knows neither tables nor tuning."""

from harness.train.build import Mixer, build_model, mixers
from harness.train.checkpoint import load_weights, save_weights
from harness.train.evaluate import Score, evaluate
from harness.train.loop import Moment, Outcome, step_function, train

__all__ = [
    "Mixer",
    "Moment",
    "Outcome",
    "Score",
    "build_model",
    "evaluate",
    "load_weights",
    "mixers",
    "save_weights",
    "step_function",
    "train",
]
