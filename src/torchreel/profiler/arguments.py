"""The arguments of torch.profiler.profile -> what to record, and what to show."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from torchreel._torch.profiler import warn_once
from torchreel.errors import OptionError
from torchreel.record import RecordOptions

# torch's names of hardware counters that are not ours.
_COUNTERS = {"pagefaults": "page-faults"}
# The fields of _ExperimentalConfig, in the order of its pickled state: the only way in which the object shows most.
_FIELDS = (
    "profiler_metrics",
    "profiler_measure_per_kernel",
    "verbose",
    "performance_events",
    "enable_cuda_sync_events",
    "adjust_profiler_step",
    "disable_external_correlation",
    "profile_all_threads",
    "capture_overload_names",
    "record_python_gc_info",
    "expose_kineto_event_metadata",
    "custom_profiler_config",
    "adjust_timestamps",
    "trace_only",
)
_OF_DEVICES = (
    "profiler_metrics",
    "profiler_measure_per_kernel",
    "enable_cuda_sync_events",
    "disable_external_correlation",
    "custom_profiler_config",
    "adjust_timestamps",
)
# Kineto's types of activities on the CPU, and the category of a trace that each of them is. What a device's runtime
# does on the CPU is not recorded.
_CATEGORIES = {
    "CPU_OP": "cpu_op",
    "USER_ANNOTATION": "user_annotation",
    "CPU_INSTANT_EVENT": "cpu_instant_event",
    "PYTHON_FUNCTION": "python_function",
    "EXTERNAL_CORRELATION": None,
    "CUDA_RUNTIME": None,
    "CUDA_DRIVER": None,
    "XPU_RUNTIME": None,
    "XPU_DRIVER": None,
    "PRIVATEUSE1_RUNTIME": None,
    "PRIVATEUSE1_DRIVER": None,
}


class ActivityTypeError(OptionError, RuntimeError):
    """A filter of activities names a type that there is not; torch.profiler raises a RuntimeError for it."""


@dataclass(frozen=True)
class Experimental:
    """What of an _ExperimentalConfig has a meaning here; see docs/profiler.md for the rest."""

    counters: tuple[str, ...] = ()
    adjust_steps: bool = False
    overload_names: bool = False
    garbage: bool = False
    event_metadata: bool = False


def experimental(config: Any) -> Experimental:
    """The settings of an _ExperimentalConfig, which may be None; says which of them do nothing."""
    if config is None:
        return Experimental()
    given = dict(zip(_FIELDS, config.__getstate__(), strict=True))
    for name in _OF_DEVICES:
        if given[name]:
            warn_once(
                f"_ExperimentalConfig({name}={given[name]!r}) has no effect: it is about the work of devices, which "
                "torchreel does not record."
            )
    names = [name.decode() if isinstance(name, bytes) else str(name) for name in given["performance_events"]]
    return Experimental(
        counters=tuple(_COUNTERS.get(name, name) for name in names),
        adjust_steps=given["adjust_profiler_step"],
        overload_names=given["capture_overload_names"],
        garbage=given["record_python_gc_info"],
        event_metadata=given["expose_kineto_event_metadata"],
    )


def record_options(
    *, shapes: bool, memory: bool, stack: bool, flops: bool, modules: bool, counters: tuple[str, ...]
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
        counters=counters,
        children=False,
        optimizer_steps=False,
    )


def shown_categories(filters: Mapping[Any, Iterable[str]]) -> frozenset[str] | None:
    """The categories that a trace shows, by the filter of CPU activities; None for all."""
    if ProfilerActivity.CPU not in filters:
        return None
    names = sorted(filters[ProfilerActivity.CPU])
    for name in names:
        if name not in _CATEGORIES:
            raise ActivityTypeError(
                f"There is no type {name!r} of activities on the CPU: there are {', '.join(_CATEGORIES)}."
            )
    return frozenset(category for name in names if (category := _CATEGORIES[name]))


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


def check_timeout(name: str, seconds: float | None) -> None:
    """Refuse a time that is negative, in words of which torch.profiler's are a part."""
    if seconds is not None and seconds < 0:
        raise OptionError(f"{name} must be non-negative, and is {seconds}: give seconds from 0, or None.")


def _warn_of_device(name: str) -> None:
    backend = getattr(torch, name.lower(), None)
    if backend is None or not hasattr(backend, "is_available") or not backend.is_available():
        # In torch's words: programs filter this warning by them.
        warnings.warn(f"{name} is not available, disabling {name} profiling", stacklevel=2)
        return
    warn_once(
        f"torchreel records calls on the CPU, those that launch work on {name} among them, but not the work itself: "
        "use torch.profiler to see kernels."
    )
