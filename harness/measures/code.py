"""Which code took a measure: its own, beside that which decides what a model computes."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


@functools.cache
def measures_hash() -> str:
    """SHA-256 over names and contents of the files of this folder, as they were when this was first asked."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        # A checkout may turn line ends into CRLF; the code is the same.
        content = file.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{file.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def measured_by(code: str) -> dict[str, str]:
    """What a measurement's record says of the code that took it.

    Args:
        code: `environment.code_hash` of the variant, as it is now.

    Returns:
        `code`, that hash, and `measures`, the one of the measures themselves.
    """
    return {"code": code, "measures": measures_hash()}
