"""Pages of a step serve the next one."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_MMAP_THRESHOLD = 32 << 20


def keep_freed_memory() -> None:
    """Have the C library keep what a step frees.

    It would give large pieces back to the system, and each operation would then wait for fresh pages: several times
    as long as it computes. Elsewhere than in glibc there is no such switch, and nothing is done.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
