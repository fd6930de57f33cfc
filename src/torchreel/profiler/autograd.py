"""torchreel in the words of torch.autograd.profiler, the older front door: change the import, and nothing else.

`profile` is ours, and takes the arguments of torch.autograd.profiler_legacy.profile as well; all else that
torch.autograd.profiler has is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import torch.autograd.profiler as torch_profiler
from torch.autograd.profiler_util import EventList

from torchreel.errors import RecorderError
from torchreel.profiler.kineto_profile import _KinetoProfile
from torchreel.profiler.results import Results
from torchreel.reel import Reel


class profile(torch_profiler.profile):  # type: ignore[misc]  # noqa: N801 - named as its users name it
    """Drop-in for torch.autograd.profiler.profile: a context manager whose results are its own methods."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: Mapping[Any, Iterable[str]] | None = None,
    ) -> None:
        super().__init__(
            enabled,
            use_cuda=use_cuda,
            use_device=use_device,
            record_shapes=record_shapes,
            with_flops=with_flops,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_modules=with_modules,
            use_kineto=use_kineto,
            use_cpu=use_cpu,
            experimental_config=experimental_config,
            acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback,
            post_processing_timeout_s=post_processing_timeout_s,
            activity_filters=None if activity_filters is None else dict(activity_filters),
        )
        if enabled:
            self._recorded = self._kineto_profile()

    def _kineto_profile(self) -> _KinetoProfile:
        filters = self.activity_filters
        return _KinetoProfile(
            activities=[{kind: filters[kind]} if kind in filters else kind for kind in self.kineto_activities],
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
            experimental_config=self.experimental_config,
            acc_events=self.acc_events,
            custom_trace_id_callback=self.custom_trace_id_callback,
            post_processing_timeout_s=self.post_processing_timeout_s,
        )

    @property
    def _results(self) -> Results:
        if not self.enabled:
            raise RecorderError("This profile has no results: it was made with enabled=False, and records nothing.")
        return self._recorded.profiler

    @property
    def reel(self) -> Reel:
        """The recording. Its files last as long as this object, or the profile that gave it."""
        return self._results.reel

    def _prepare_trace(self) -> None:
        self.entered = True
        self._recorded.prepare_trace()
        self.trace_id = self._results.trace_id

    def _start_trace(self) -> None:
        self.entered = True
        self._recorded.start_trace()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if not self.enabled:
            return
        self._recorded.stop_trace()
        self._stats = self._results._stats
        self.kineto_results = _Later(self._results)
        self._function_events = None
        self._needs_processing = True

    def _ensure_function_events(self) -> None:
        if self.enabled and self.experimental_config.trace_only:
            raise RuntimeError(
                "Events are not available with trace_only=True in _ExperimentalConfig: use export_chrome_trace()."
            )
        self._function_events = self._results.function_events
        self._needs_processing = False

    def _parse_kineto_results(self, result: Any, timeout_s: float | None = None) -> EventList:
        return self._results._parse_kineto_results(result, timeout_s)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The calls summed by name, and by what else is asked for."""
        return self._results.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_chrome_trace(self, path: str, metadata: Any = None, use_python_export: bool = False) -> None:
        """Write the calls as a Chrome trace; compressed if the path ends in .gz. There is only one exporter."""
        for key, value in (metadata or {}).items():
            self._recorded.add_metadata_json(key, value)
        self._results.export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the stacks with their time, for flame graphs."""
        self._results.export_stacks(path, metric)

    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[Any]) -> None:
        """Leave out what happens on the CPU from now on, or no longer."""
        self._recorded.toggle_collection_dynamic(enabled, activities)


class _Later:
    """Kineto's results, made only when somebody asks for one of their parts."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results.kineto_results, name)


def __getattr__(name: str) -> Any:
    """All else: record_function, emit_itt, EventList ..."""
    try:
        return getattr(torch_profiler, name)
    except AttributeError:
        raise AttributeError(f"module 'torchreel.profiler.autograd' has no attribute {name!r}") from None
