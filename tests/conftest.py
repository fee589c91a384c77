"""One thread for each test process: two of them share two cores."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
