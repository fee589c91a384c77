"""Whether the process that trains something is still there: its id, its host, and when it started."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def described(pid: int) -> dict[str, Any]:
    """A process as it is written down: an id alone would come round again after a restart."""
    return {"pid": pid, "host": socket.gethostname(), "start": _start(pid)}


def gone(process: Mapping[str, Any] | None) -> bool:
    """Whether a process that was written down is known to have ended; that of another host never is."""
    if process is None:
        return True
    here = process.get("host") == socket.gethostname()
    return here and _start(int(process["pid"])) != process.get("start")


def elsewhere(process: Mapping[str, Any] | None) -> bool:
    """Whether it runs on another host, where nobody can look."""
    return process is not None and process.get("host") != socket.gethostname()


def _start(pid: int) -> str:
    """When a process started, in words that differ from one boot to the next; empty where there is none."""
    try:
        # The name of the program, in brackets, may hold anything; the fields after it do not.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # A zombie trains nothing any more.
        return "" if fields[0] in "ZX" else f"{fields[19]}@{boot[:8]}"
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return ""
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip()
