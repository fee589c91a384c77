"""What attention does inside a trained model: one measure a file, with its formula.

Reading order: `maps` (attention maps of any mixer) and `inside` (what one forward pass shows) -> one file a measure ->
`suite` (all of them on a model) -> `watch` (while it trains).
"""

from __future__ import annotations

from harness.measures.extrapolation import why_not as not_longer
from harness.measures.finding import Finding
from harness.measures.maps import attention_map, gives_maps
from harness.measures.suite import NAMES, NEED_MAPS, VERSIONS, WHILE_TRAINING, chosen, measure
from harness.measures.watch import Watch, write

__all__ = [
    "NAMES",
    "NEED_MAPS",
    "VERSIONS",
    "WHILE_TRAINING",
    "Finding",
    "Watch",
    "attention_map",
    "chosen",
    "gives_maps",
    "measure",
    "not_longer",
    "write",
]
