"""profile: torch.profiler's context manager, schedule and steps, with our recorder beneath them.

torch.profiler.profile decides when a cycle is prepared, started and stopped, and calls the three methods for it that
`_KinetoProfile` has of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType, TracebackType
from typing import Any

from torch.autograd.profiler import KinetoStepTracker
from torch.profiler import profile as _torch_profile
from torch.profiler.profiler import PROFILER_STEP_NAME, ProfilerAction

from torchreel import _core
from torchreel.profiler.kineto_profile import _KinetoProfile


class profile(_KinetoProfile, _torch_profile):  # type: ignore[misc]  # noqa: N801 - named as its users name it
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
        _torch_profile.__init__(
            self,
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
        self._set_up()
        self._was_started = False

    def _first_step(self) -> int:
        return int(self.step_num)

    def _transit_action(self, prev_action: ProfilerAction, current_action: ProfilerAction | None) -> None:
        cycle = self._cycle
        for action in self.action_map.get((prev_action, current_action), ()):
            action(self)
        if cycle is not None and cycle is self._cycle:
            cycle.step()

    def start(self) -> None:
        """Begin, as the schedule says: recording, or waiting for the step from which it does."""
        self._was_started = True
        with _own_work():
            self._begin(super(_KinetoProfile, self).start)

    def step(self) -> None:
        """The next step of the program begins. After stop() steps are only counted.

        Without start() the schedule is followed all the same, from its second step on, as torch.profiler does.
        """
        if self._running or not self._was_started:
            with _own_work():
                super().step()
        else:
            self.step_num += 1

    def stop(self) -> None:
        """End, and call on_trace_ready if something was being recorded."""
        with _own_work():
            self._finish(super(_KinetoProfile, self).stop)

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

    def _trace_ready(self) -> None:
        if self._has_new_trace:
            self._has_new_trace = False
            super()._trace_ready()


class _own_work:  # noqa: N801 - a context manager, as those of contextlib are named
    """What is called in Python within it is the profiler's, and no part of the program that is profiled."""

    def __enter__(self) -> None:
        _core.own_work(True)

    def __exit__(self, *error: object) -> None:
        _core.own_work(False)


def _unbound(action: Callable[[], Any]) -> Callable[[profile], Any]:
    """An action of torch's table of transitions as a function of the profile, which it does not hold."""
    return action.__func__ if isinstance(action, MethodType) else lambda _: action()
