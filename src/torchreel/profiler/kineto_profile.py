"""_KinetoProfile: torch.profiler's low-level class, from which libraries derive, with our recorder beneath it.

torch's class keeps the arguments; prepare_trace, start_trace and stop_trace are replaced, and each trace becomes a
reel. What asks for results finds ours where torch has its own: in `profiler`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch.profiler import ProfilerActivity

from torchreel._torch.profiler import KinetoProfile, NumpyEncoder, distributed_info, metadata_of_trace, warn_once
from torchreel.errors import AlreadyRecordingError, OptionError, RecorderError, ReelExistsError, UnavailableError
from torchreel.profiler.arguments import (
    check_activities,
    check_timeout,
    experimental,
    record_options,
    shown_categories,
)
from torchreel.profiler.cycle import Cycle
from torchreel.profiler.results import ResultOptions, Results
from torchreel.reel import Reel
from torchreel.reel.meta import write_meta

_last_started: weakref.ref[_KinetoProfile] | None = None


class _KinetoProfile(KinetoProfile):  # type: ignore[misc]
    """Drop-in for torch.profiler._KinetoProfile: start() and stop(), or prepare_trace(), start_trace(), stop_trace().

    `reel` is the recording of the last trace, with all that torchreel can do with one.
    """

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        KinetoProfile.__init__(
            self,
            activities=None if activities is None else list(activities),
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            execution_trace_observer=execution_trace_observer,
            acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback,
            post_processing_timeout_s=post_processing_timeout_s,
        )
        self._set_up()

    def _set_up(self) -> None:
        """What there is besides the arguments, which torch's class has taken."""
        check_timeout("post_processing_timeout_s", self.post_processing_timeout_s)
        self._experimental = experimental(self.experimental_config)
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
            ResultOptions(
                profile_memory=self.profile_memory,
                with_flops=self.with_flops,
                with_stack=self.with_stack,
                timeout_s=self.post_processing_timeout_s,
                categories=None,
                adjust_steps=self._experimental.adjust_steps,
                overload_names=self._experimental.overload_names,
                event_metadata=self._experimental.event_metadata,
            )
        )

    def start(self) -> None:
        """Begin recording."""
        self._begin(super().start)

    def _begin(self, start: Callable[[], None]) -> None:
        global _last_started
        self._check_alone()
        try:
            start()
        except BaseException:
            self._end_cycle()
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

    def stop(self) -> None:
        """End the recording."""
        self._finish(super().stop)

    def _finish(self, stop: Callable[[], None]) -> None:
        if not self._running:
            raise RecorderError("This profile is not running: it has not been started, or has already been stopped.")
        self._running_in = None
        try:
            stop()
        finally:
            self._end_cycle()

    def prepare_trace(self) -> None:
        """A trace will be recorded soon: earlier results make room for its own."""
        began = time.perf_counter_ns()
        check_activities(self.activities)
        categories = shown_categories(self.activity_filters)
        if self.profiler.trace_id is not None and not self.acc_events:
            warn_once(
                "Warning: Profiler clears events at the end of each cycle. "
                "Only events from the current cycle will be reported. "
                "To keep events across cycles, set acc_events=True."
            )
            self.profiler = self._no_results()
        self.profiler.show_only(categories)
        make_id = self.custom_trace_id_callback
        self.profiler.trace_id = make_id() if make_id else f"{uuid.uuid4().int:032X}"
        self.profiler.took("profiler_prepare_call_duration_us", began)

    def start_trace(self) -> None:
        """A trace begins."""
        if self._cycle is not None:
            raise RecorderError("A trace is being recorded: call stop_trace() before you start another.")
        if self.profiler.trace_id is None:
            raise RecorderError("There is no trace to start yet: call prepare_trace() before start_trace().")
        if self.profiler.has_results and not self.acc_events:
            self.prepare_trace()  # a schedule went from RECORD to WARMUP, where torch prepares nothing
        began = time.perf_counter_ns()
        self.profiler.begin()
        if self.execution_trace_observer:
            self.execution_trace_observer.start()
        self._cycle = Cycle(self._record_options(), self._first_step(), garbage=self._experimental.garbage)
        self.profiler.took("profiler_enable_call_duration_us", began)

    def _record_options(self) -> Any:
        return record_options(
            shapes=self.record_shapes,
            memory=self.profile_memory,
            stack=self.with_stack,
            flops=self.with_flops,
            modules=self.with_modules,
            counters=self._experimental.counters,
        )

    def _first_step(self) -> int:
        return 0

    def stop_trace(self) -> None:
        """The trace ends, and becomes the result."""
        if self._cycle is None:
            raise RecorderError("No trace is being recorded: call start_trace() before stop_trace().")
        self._end_cycle()

    def _end_cycle(self) -> None:
        """A trace's recording ends, if one goes on."""
        if self.execution_trace_observer:
            self.execution_trace_observer.stop()
        cycle, self._cycle = self._cycle, None
        if cycle is not None:
            began = time.perf_counter_ns()
            reel = cycle.stop()
            _attach(reel, self._metadata())
            self.profiler.add(reel)
            self._has_new_trace = True
            self.profiler.took("profiler_disable_call_duration_us", began)

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
        """Not supported: torch will remove it."""
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
        _parsed(key, value)
        metadata_of_trace(self)[key] = value
        if self.profiler.has_results:
            _attach(self.reel, self._metadata())

    def preset_metadata_json(self, key: str, value: str) -> None:
        """The same as add_metadata_json, which torch refuses before the start."""
        self.add_metadata_json(key, value)

    def _metadata(self) -> dict[str, Any]:
        """What torch.profiler writes at the top level of a trace."""
        flags = ("profile_memory", "with_stack", "record_shapes", "with_modules", "with_flops")
        world = distributed_info(self)
        return {
            **{flag: 1 for flag in flags if getattr(self, flag)},
            **({"distributedInfo": json.loads(json.dumps(world, cls=NumpyEncoder))} if world else {}),
            **{key: _parsed(key, value) for key, value in {**self.preset_metadata, **metadata_of_trace(self)}.items()},
            "trace_id": self.profiler.trace_id,
        }


def _parsed(key: str, value: str) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(value)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"The metadata {key!r} has the value {value!r}, which is not JSON ({error}): "
            "write it with json.dumps, or use add_metadata for plain text."
        ) from None


def _attach(reel: Reel, metadata: dict[str, Any]) -> None:
    """Put the metadata into the reel, in memory and on disk."""
    reel.meta["metadata"] = metadata
    write_meta(reel.path, reel.meta)
