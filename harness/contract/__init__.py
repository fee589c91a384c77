"""What every mixer must keep: one function a claim, called by the tests and by `check`."""

from harness.contract.examine import CLAIMS, examine, hold, option_configs, same_bits, switch_configs
from harness.contract.finding import Absent, Broken, Finding
from harness.contract.subject import Subject

__all__ = [
    "CLAIMS",
    "Absent",
    "Broken",
    "Finding",
    "Subject",
    "examine",
    "hold",
    "option_configs",
    "same_bits",
    "switch_configs",
]
