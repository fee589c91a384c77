"""One thread for each test process: two of them share two cores. No property fails because the machine is busy."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
