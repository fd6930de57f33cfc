"""profile: torch.profiler's context manager, schedule and steps, with our recorder beneath them.

torch.profiler.profile decides when a cycle is prepared, started and stopped, and calls three methods for it. They are
replaced here; each cycle becomes a reel. What asks for results finds ours where torch has its own: in `profiler`.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import weakref
from collections.abc import Callable, Iterable
from types import MethodType, TracebackType
from typing import Any

import torch.profiler
from torch.autograd.profiler import KinetoStepTracker
from torch.profiler.profiler import PROFILER_STEP_NAME, ProfilerAction, ProfilerActivity, _NumpyEncoder, _warn_once

from torchreel.errors import AlreadyRecordingError, OptionError, RecorderError, ReelExistsError, UnavailableError
from torchreel.profiler.arguments import check_activities, record_options
from torchreel.profiler.cycle import Cycle
from torchreel.profiler.metadata import attach, parsed
from torchreel.profiler.results import ResultOptions, Results
from torchreel.reel import Reel

_last_started: weakref.ref[profile] | None = None


class profile(torch.profiler.profile):  # type: ignore[misc]  # noqa: N801 - named as its users name it
    """Drop-in for torch.profiler.profile: same arguments, same methods, same schedule.

    `reel` is the recording of the last cycle, with all that torchreel can do with one.
    """

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        if post_processing_timeout_s is not None and post_processing_timeout_s < 0:
            raise OptionError(
                f"post_processing_timeout_s={post_processing_timeout_s} is negative: give seconds from 0, or None."
            )
        super().__init__(
            activities=None if activities is None else list(activities),
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            execution_trace_observer=execution_trace_observer,
            acc_events=acc_events,
            use_cuda=use_cuda,
            custom_trace_id_callback=custom_trace_id_callback,
            post_processing_timeout_s=post_processing_timeout_s,
        )
        # torch keeps bound methods here, references of the profile to itself: without gc it would never die.
        actions: dict[Any, list[Callable[[], Any]]] = vars(self)["action_map"]
        self.action_map = {states: [_unbound(action) for action in actions[states]] for states in actions}
        self.profiler: Results = self._no_results()
        self._cycle: Cycle | None = None
        self._running_in: int | None = None
        self._has_new_trace = False

    @property
    def _running(self) -> bool:
        # Asked by process id: in a forked child the copy of a profile that runs is the parent's, and records nothing.
        return self._running_in == os.getpid()

    def _no_results(self) -> Results:
        return Results(
            ResultOptions(self.profile_memory, self.with_flops, self.with_stack, self.post_processing_timeout_s)
        )

    def _transit_action(self, prev_action: ProfilerAction, current_action: ProfilerAction | None) -> None:
        cycle = self._cycle
        for action in self.action_map.get((prev_action, current_action), ()):
            action(self)
        if cycle is not None and cycle is self._cycle:
            cycle.step()

    def start(self) -> None:
        """Begin, as the schedule says: recording, or waiting for the step from which it does."""
        global _last_started
        self._check_alone()
        try:
            super().start()
        except BaseException:
            self.stop_trace()
            raise
        self._running_in = os.getpid()
        _last_started = weakref.ref(self)

    def _check_alone(self) -> None:
        if self._running:
            raise RecorderError("This profile has already been started: call stop() before you start it again.")
        other = _last_started() if _last_started is not None else None
        if other is not None and other._running:
            raise AlreadyRecordingError(
                "Another profile has been started and not stopped, and there can be one at a time: "
                "stop it before you start this one. It goes on unharmed."
            )

    def step(self) -> None:
        """The next step of the program begins. Before start() and after stop() steps are only counted."""
        if self._running:
            super().step()
        else:
            self.step_num += 1

    def stop(self) -> None:
        """End, and call on_trace_ready if something was being recorded."""
        if not self._running:
            raise RecorderError("This profile is not running: it has not been started, or has already been stopped.")
        self._running_in = None
        try:
            super().stop()
        finally:
            self.stop_trace()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        try:
            if self._running:
                self.stop()
        finally:
            KinetoStepTracker.erase_step_count(PROFILER_STEP_NAME)
            if self.execution_trace_observer:
                self.execution_trace_observer.cleanup()

    def prepare_trace(self) -> None:
        """A cycle will be recorded soon: earlier results make room for its own."""
        check_activities(self.activities)
        if self.profiler.trace_id is not None and not self.acc_events:
            _warn_once(
                "Warning: Profiler clears events at the end of each cycle. "
                "Only events from the current cycle will be reported. "
                "To keep events across cycles, set acc_events=True."
            )
            self.profiler = self._no_results()
        make_id = self.custom_trace_id_callback
        self.profiler.trace_id = make_id() if make_id else f"{uuid.uuid4().int:032X}"

    def start_trace(self) -> None:
        """A cycle's recording begins."""
        if self.profiler.has_results and not self.acc_events:
            self.prepare_trace()  # a schedule went from RECORD to WARMUP, where torch prepares nothing
        options = record_options(
            shapes=self.record_shapes,
            memory=self.profile_memory,
            stack=self.with_stack,
            flops=self.with_flops,
            modules=self.with_modules,
            experimental_config=self.experimental_config,
        )
        self._cycle = Cycle(options, first_step=self.step_num)
        if self.execution_trace_observer:
            self.execution_trace_observer.start()

    def stop_trace(self) -> None:
        """A cycle's recording ends, if one goes on, and becomes the result."""
        if self.execution_trace_observer:
            self.execution_trace_observer.stop()
        cycle, self._cycle = self._cycle, None
        if cycle is not None:
            reel = cycle.stop()
            attach(reel, self._metadata())
            self.profiler.add(reel)
            self._has_new_trace = True

    def _trace_ready(self) -> None:
        if self._has_new_trace:
            self._has_new_trace = False
            super()._trace_ready()

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Leave out what happens on the CPU from now on, or no longer."""
        if self._cycle is not None and ProfilerActivity.CPU in set(activities):
            self._cycle.collect(enable)

    @property
    def reel(self) -> Reel:
        """The recording of the last cycle. Its files last as long as this object, or the profile that gave it."""
        return self.profiler.reel

    def export_reel(self, path: str | os.PathLike[str]) -> None:
        """Keep the recording of the last cycle."""
        try:
            shutil.copytree(self.reel.path, path)
        except FileExistsError:
            raise ReelExistsError(
                f"{path} already exists and is not overwritten: give another name, or remove it first."
            ) from None

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Write the last cycle as a Chrome trace; compressed if the path ends in .gz. There is only one exporter."""
        self.profiler.export_chrome_trace(path)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Not done: torch itself will remove it."""
        raise UnavailableError(
            "export_memory_timeline is deprecated by PyTorch and is not done here: profile_memory=True puts every "
            "alloc and free into `reel.allocs` of this profile, and into its Chrome trace."
        )

    def _memory_profile(self) -> None:
        self.export_memory_timeline("")

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text at the top level of traces; before, while or after they are recorded."""
        self.add_metadata_json(key, json.dumps(value))

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put a JSON value at the top level of traces; before, while or after they are recorded."""
        parsed(key, value)
        self._trace_metadata[key] = value
        if self.profiler.has_results:
            attach(self.reel, self._metadata())

    def preset_metadata_json(self, key: str, value: str) -> None:
        """The same as add_metadata_json, which torch refuses before the start."""
        self.add_metadata_json(key, value)

    def _metadata(self) -> dict[str, Any]:
        """What torch.profiler writes at the top level of a trace."""
        flags = ("profile_memory", "with_stack", "record_shapes", "with_modules", "with_flops")
        world = self._get_distributed_info()
        return {
            **{flag: 1 for flag in flags if getattr(self, flag)},
            **({"distributedInfo": json.loads(json.dumps(world, cls=_NumpyEncoder))} if world else {}),
            **{key: parsed(key, value) for key, value in {**self.preset_metadata, **self._trace_metadata}.items()},
            "trace_id": self.profiler.trace_id,
        }


def _unbound(action: Callable[[], Any]) -> Callable[[profile], Any]:
    """An action of torch's table of transitions as a function of the profile, which it does not hold."""
    return action.__func__ if isinstance(action, MethodType) else lambda _: action()
