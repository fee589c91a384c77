"""How fast everything is on this machine, as ratios measured side by side; neither tuning nor the command line."""

from harness.bench.bars import BARS, judged
from harness.bench.benchmark import bench
from harness.bench.earlier import against, load
from harness.bench.options import PARTS, Options, asked
from harness.bench.text import lines

__all__ = ["BARS", "PARTS", "Options", "against", "asked", "bench", "judged", "lines", "load"]
