"""Run what is missing, on several processes, and record each run as it ends."""

from harness.execute.pool import Options, execute
from harness.execute.timing import time_arms
from harness.execute.worker import needed

__all__ = ["Options", "execute", "needed", "time_arms"]
