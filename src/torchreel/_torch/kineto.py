"""Kineto, torch's reader of devices' activities, without the ops that torch.profiler records beside them.

torch.profiler.profile sees ops on the CPU or nothing but devices. Here Kineto also sees ranges, which cost nothing
while none is opened: both our recorder and Kineto then know when each began and ended, each by its own clock.
"""

from __future__ import annotations

import torch
import torch._C._autograd as _autograd
from torch._C._profiler import ProfilerConfig, ProfilerState, RecordScope, _ExperimentalConfig
from torch.profiler import ProfilerActivity

Activities = frozenset[ProfilerActivity]

CPU: Activities = frozenset({ProfilerActivity.CPU})


def device_activities() -> Activities:
    """The kinds of devices here whose activity Kineto can read: empty where there is none."""
    if not torch.accelerator.is_available():
        return frozenset()
    return frozenset(torch.profiler.supported_activities()) - CPU


def start(activities: Activities) -> None:
    """Begin. The session belongs to the process: any thread may end it."""
    experimental = _ExperimentalConfig(profile_all_threads=True, enable_cuda_sync_events=True, trace_only=True)
    config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, experimental)
    wanted = set(activities | CPU)
    _autograd._prepare_profiler(config, wanted)
    _autograd._enable_profiler(config, wanted, {RecordScope.USER_SCOPE})  # type: ignore[call-arg]


def is_the_programs() -> bool:
    """Whether torch.profiler has a session on, begun in this thread. Kineto has room for one: a later one ends it."""
    return bool(torch.autograd._profiler_enabled())  # ours is of no thread, and does not count


def stop(path: str) -> bool:
    """End the session, after all that devices were given to do, and write its trace.

    False, and no file, if the program has used torch.profiler since, and ended the session with that.
    """
    if is_the_programs():
        return False
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    result = _autograd._disable_profiler()
    if result.trace_start_ns() == 0:  # there was no session, and nothing that could be saved
        return False
    result.save(path)
    return True


def cancel() -> None:
    """End the session and forget what it saw."""
    if not is_the_programs():
        _autograd._disable_profiler()
