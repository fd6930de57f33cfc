"""The arguments of torch.profiler.profile -> what to record."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import torch
from torch.profiler import ProfilerActivity
from torch.profiler.profiler import _warn_once

from torchreel.errors import OptionError
from torchreel.record import RecordOptions

# torch's names of hardware counters that are not ours.
_COUNTERS = {"pagefaults": "page-faults"}
# The place of `performance_events` in the pickled state, the only way in which the object shows it.
_PERFORMANCE_EVENTS = 3


def record_options(
    *, shapes: bool, memory: bool, stack: bool, flops: bool, modules: bool, experimental_config: Any
) -> RecordOptions:
    """The options of a recording that has all that torch.profiler would have, and no more processes."""
    return RecordOptions(
        shapes=shapes,
        memory=memory,
        stacks=stack,
        # torch.profiler shows Python functions and nn.Modules as calls of their own as soon as stacks are asked for.
        python=stack,
        modules=modules or stack,
        flops=flops,
        counters=_counters(experimental_config),
        children=False,
        optimizer_steps=False,
    )


def _counters(experimental_config: Any) -> tuple[str, ...]:
    if experimental_config is None:
        return ()
    names = [name.decode() for name in experimental_config.__getstate__()[_PERFORMANCE_EVENTS]]
    return tuple(_COUNTERS.get(name, name) for name in names)


def check_activities(activities: Collection[Any]) -> None:
    """Warn of devices whose work will not be seen; refuse if nothing is left to record."""
    for activity in sorted(activities, key=lambda activity: str(activity.name)):
        if activity != ProfilerActivity.CPU:
            _warn_of_device(str(activity.name))
    if ProfilerActivity.CPU not in activities:
        names = ", ".join(sorted(f"ProfilerActivity.{activity.name}" for activity in activities))
        raise OptionError(
            f"activities=[{names}] leaves nothing to record, because what a device does is not recorded: "
            "add ProfilerActivity.CPU."
        )


def _warn_of_device(name: str) -> None:
    backend = getattr(torch, name.lower(), None)
    if backend is None or not hasattr(backend, "is_available") or not backend.is_available():
        # In torch's words: programs filter this warning by them.
        warnings.warn(f"{name} is not available, disabling {name} profiling", stacklevel=2)
        return
    _warn_once(
        f"torchreel records calls on the CPU, those that launch work on {name} among them, but not the work itself: "
        "use torch.profiler to see kernels."
    )
