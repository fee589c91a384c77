"""The benchmark by itself: `python -m harness.bench --device cuda --json`; it loads neither tyro nor Optuna."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from harness.bench import PARTS, against, asked, bench, lines, load
from harness.errors import UsageError


def main(words: list[str]) -> int:
    """Measure and write; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m harness.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all unless given")
    parser.add_argument("--lengths", nargs="*", metavar="N", help="tokens of the cores")
    parser.add_argument("--dtypes", nargs="*", metavar="DTYPE", help="float32, bfloat16")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--json", action="store_true", help="JSON on stdout, the table on stderr")
    parser.add_argument("--against", type=Path, metavar="FILE", help="an earlier result: compare its ratios")
    flags = parser.parse_args(words)
    try:
        then = None if flags.against is None else load(flags.against)
        options = asked(parts=flags.parts, lengths=flags.lengths, dtypes=flags.dtypes, device=flags.device)
        result = bench(options, _say)
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if flags.json:
        # Flushed before the table: written to one place, the table is still what stands last.
        sys.stdout.write(json.dumps(result, indent=1, allow_nan=False) + "\n")
        sys.stdout.flush()
    changes = None if then is None else against(result, then)
    (sys.stderr if flags.json else sys.stdout).write("\n".join(lines(result, changes)) + "\n")
    return 1 if result["machine"]["wrong"] else 0


def _say(stage: str) -> None:
    sys.stderr.write(f"{stage}\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
