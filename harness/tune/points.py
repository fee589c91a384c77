"""The next point of a study. It depends on the study's seed, the trial's number and, for TPE, on finished trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna

from harness.model import keyed_seed
from harness.tune.dims import Dim
from harness.tune.effort import STARTUP, Effort


def drawn(effort: Effort, study: int, slot: int, dims: Sequence[Dim]) -> dict[str, Any] | None:
    """The point of a trial that needs no look at other trials, None where TPE has to be asked.

    A random value is keyed by (seed, study, trial, field): variants share the values of the fields they share, and
    a search that goes on after a kill draws what it would have drawn.

    Args:
        effort: sampler and seed.
        study: its index, from 0.
        slot: number of the trial, from 1; 0 is the defaults'.
        dims: searched fields.
    """
    if effort.sampler == "qmc":
        # Loading it takes as long as the rest of a search's start.
        from scipy.stats import qmc

        generator = np.random.default_rng(keyed_seed("sobol", effort.seed, study))
        sequence = qmc.Sobol(d=len(dims), scramble=True, seed=generator)
        if slot > 1:
            sequence.fast_forward(slot - 1)
        return {dim.name: dim.at(float(share)) for dim, share in zip(dims, sequence.random(1)[0], strict=True)}
    if effort.sampler == "tpe" and slot >= STARTUP:
        return None
    keys = {dim.name: keyed_seed("point", effort.seed, study, slot, dim.name) for dim in dims}
    return {dim.name: dim.at(float(np.random.default_rng(keys[dim.name]).random())) for dim in dims}


def tpe(effort: Effort, study: int, slot: int) -> optuna.samplers.BaseSampler:
    """TPE for one trial; a fresh one each time, so that a resumed search repeats no draws and skips none."""
    seed = keyed_seed("tpe", effort.seed, study, slot) % 2**32
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)


def distributions(dims: Sequence[Dim]) -> dict[str, optuna.distributions.BaseDistribution]:
    """The dimensions as Optuna knows them."""
    return {dim.name: _distribution(dim) for dim in dims}


def _distribution(dim: Dim) -> optuna.distributions.BaseDistribution:
    if dim.options:
        return optuna.distributions.CategoricalDistribution(dim.options)
    if dim.whole:
        return optuna.distributions.IntDistribution(int(dim.low), int(dim.high), log=dim.log)
    return optuna.distributions.FloatDistribution(dim.low, dim.high, log=dim.log)
