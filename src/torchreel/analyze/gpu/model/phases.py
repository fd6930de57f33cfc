"""Whether kernels belong to forward, to backward, or to forward run again in backward (activation checkpointing)."""

from __future__ import annotations

import re

import numpy as np

from torchreel.analyze.gpu.model.run import DeviceRun
from torchreel.reel.columns import Ints

PHASES = ("forward", "backward", "recompute")
FORWARD, BACKWARD, RECOMPUTE = range(len(PHASES))

_CHECKPOINT = re.compile(r"CheckpointFunctionBackward\d*$|checkpoint\.py\(\d+\): (recompute_fn|unpack_hook)$")


def call_phases(run: DeviceRun) -> Ints:
    """The phase of each call: of the innermost around it, itself included, that tells it.

    A node of autograd's graph tells backward. A module that is called within one, or a function of checkpoints, tells
    that forward is run again. All else is forward, the optimizer too.
    """
    calls = run.calls
    backward = calls.backward
    again = calls.named(_CHECKPOINT.search)
    again |= calls.of_kind(frozenset({"module"})) & (calls.nearest(backward) >= 0)
    nearest = calls.nearest(backward | again)
    return np.where(nearest < 0, FORWARD, np.where(again[nearest], RECOMPUTE, BACKWARD))


def kernel_phases(run: DeviceRun) -> Ints:
    """The phase of each kernel: that of the call which launched it."""
    kernels = run.kernels
    found: Ints = np.append(call_phases(run), FORWARD)[np.where(kernels.launch >= 0, kernels.launch, kernels.op)]
    return found
