"""The results of a profile: what torch.profiler.profile has as its attribute `profiler`, once it has recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from torch.autograd.profiler_util import EventList, FunctionEventAvg

from torchreel.errors import OptionError, RecorderError
from torchreel.export import export, write_stacks
from torchreel.profiler.averages import Grouping, key_averages
from torchreel.profiler.calls import read_calls
from torchreel.profiler.details import CallDetails
from torchreel.profiler.events import event_list
from torchreel.reel import Reel


@dataclass(frozen=True)
class ResultOptions:
    """Which of a profile's arguments its results depend on."""

    profile_memory: bool
    with_flops: bool
    with_stack: bool
    timeout_s: float | None


class Results:
    """Answers from the reels of one cycle, or of several if their events are to be kept."""

    def __init__(self, options: ResultOptions) -> None:
        self.trace_id: str | None = None
        self._options = options
        self._reels: list[Reel] = []
        self._events: EventList | None = None

    def add(self, reel: Reel) -> None:
        """Another cycle has ended."""
        self._reels.append(reel)
        self._events = None

    @property
    def has_results(self) -> bool:
        """Whether a cycle has ended."""
        return bool(self._reels)

    @property
    def reel(self) -> Reel:
        """The recording of the last cycle."""
        return self._recorded()[-1]

    def _recorded(self) -> list[Reel]:
        if not self._reels:
            raise RecorderError(
                "This profile has no results yet: they are there after stop(), and after each cycle of its schedule."
            )
        return self._reels

    def _calls(self) -> list[tuple[pa.Table, CallDetails]]:
        """The calls of each reel, the last first, as torch.profiler has them."""
        options = self._options
        return [
            (read_calls(reel, places=options.with_stack, flops=options.with_flops), CallDetails(reel))
            for reel in reversed(self._recorded())
        ]

    @property
    def _shown(self) -> dict[str, Any]:
        return {"profile_memory": self._options.profile_memory, "with_flops": self._options.with_flops}

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The calls summed by name, and by what else is asked for."""
        grouping = Grouping(group_by_input_shape, group_by_stack_n, group_by_overload_name)
        return key_averages(self._calls(), grouping, **self._shown)

    @property
    def function_events(self) -> EventList:
        """Every call as an object: made when first asked for, and then kept."""
        if self._events is None:
            lists = [event_list(*recorded, self._options.timeout_s, **self._shown) for recorded in self._calls()]
            self._events = lists[0]
            for older in lists[1:]:
                self._events.extend(older)
        return self._events

    def total_average(self) -> FunctionEventAvg:
        """The sum over all calls."""
        return self.key_averages().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds in all calls."""
        return float(self.key_averages().self_cpu_time_total)

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The table of all calls, one row for each."""
        return str(self.function_events.table(*args, **kwargs))

    def export_chrome_trace(self, path: str) -> None:
        """Write the last cycle as a Chrome trace; compressed if the path ends in .gz."""
        export(self.reel, path, to="chrome")

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the stacks of the last cycle with their time, for flame graphs."""
        reel = self.reel
        if not self._options.with_stack:
            raise OptionError("There are no stacks to export: give with_stack=True to profile().")
        write_stacks(reel, Path(path), metric)
