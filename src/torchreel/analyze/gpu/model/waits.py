"""Calls in which the host waits for a device: synchronisations, blocking copies, and frees that synchronise."""

from __future__ import annotations

import re

import numpy as np

from torchreel.analyze.gpu.model.calls import API
from torchreel.analyze.gpu.model.run import DeviceRun
from torchreel.reel.columns import Mask

_WAITS = re.compile(
    r"Synchronize"
    r"|^(cuda|hip)Memcpy(?!.*Async)"
    r"|^cuMemcpy(?!.*Async)"
    r"|^(cuda|hip)Free(Host|Array)?$|^cuMemFree|^hipHostFree$"
    r"|^(cuda|hip)StreamWaitValue(?!.*Async)",
)
# Traces of ROCm lack the call of the API at times, and have the Python function around it.
_PYTHON_WAITS = re.compile(r"built-in .*_(cuda|xpu|mtia)_synchronize|torch[/\\](cuda|xpu|mtia)[/\\]\S*: synchronize$")
_COLLECTIVE = re.compile(r"^(c10d|nccl|gloo|_c10d_functional)\b|record_param_comms|ProcessGroup", re.IGNORECASE)


def waiting(run: DeviceRun) -> Mask:
    """Which calls wait for a device: by their names, or because what they launched had ended when they returned.

    The latter are copies to memory that is not pinned, which cudaMemcpyAsync makes as a blocking call.
    """
    calls, kernels = run.calls, run.kernels
    found = calls.of_kind(API) & calls.named(_WAITS.search)
    found |= calls.of_kind(frozenset({"python"})) & calls.named(_PYTHON_WAITS.search)
    copies = np.array([*(kind == "copy" for kind in kernels.kinds), False], bool)[kernels.kind]
    launched = np.flatnonzero(copies & (kernels.launch >= 0))
    launches = kernels.launch[launched]
    found[launches[calls.end[launches] >= kernels.end[launched]]] = True
    return found


def of_collectives(run: DeviceRun) -> Mask:
    """Which calls belong to a collective: they are one of c10d, or lie in one."""
    return run.calls.nearest(run.calls.named(_COLLECTIVE.search)) >= 0
