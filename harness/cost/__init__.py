"""What a model costs, and the sizes at which two models cost the same."""

from harness.cost.match import MATCHES, matched
from harness.cost.model import layer_cost, model_cost, rest_of_block, run_cost

__all__ = ["MATCHES", "layer_cost", "matched", "model_cost", "rest_of_block", "run_cost"]
