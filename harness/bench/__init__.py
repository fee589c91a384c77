"""How fast everything is on this machine, as ratios measured side by side; neither tuning nor the command line."""

from harness.bench.bars import BARS, judged
from harness.bench.benchmark import PARTS, Options, bench
from harness.bench.earlier import against
from harness.bench.text import lines

__all__ = ["BARS", "PARTS", "Options", "against", "bench", "judged", "lines"]
