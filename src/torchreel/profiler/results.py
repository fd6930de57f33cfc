"""The results of a profile: what torch.profiler.profile has as its attribute `profiler`, once it has recorded."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from torch.autograd.profiler_util import EventList, FunctionEventAvg

from torchreel import _core
from torchreel._torch.profiler import ProfilerStats
from torchreel.errors import OptionError, RecorderError
from torchreel.export.chrome.chrome import TraceOptions
from torchreel.export.chrome.chrome import write_trace as write_chrome
from torchreel.export.stacks import write_stacks
from torchreel.profiler.arguments import check_timeout
from torchreel.profiler.averages import Grouping, key_averages
from torchreel.profiler.calls import read_calls
from torchreel.profiler.details import CallDetails
from torchreel.profiler.event_tree import KinetoResults
from torchreel.profiler.events import event_list
from torchreel.profiler.names import module_names, module_number, python_name
from torchreel.profiler.steps import moved_steps
from torchreel.reel import Reel


@dataclass(frozen=True)
class ResultOptions:
    """Which of a profile's arguments its results depend on."""

    profile_memory: bool
    with_flops: bool
    with_stack: bool
    timeout_s: float | None = None
    categories: frozenset[str] | None = None
    """Kineto's categories that a trace shows; None for all."""
    adjust_steps: bool = False
    """A step begins no earlier than the Python call in which it ends."""
    overload_names: bool = False
    """Ops have the names of their overloads in a trace."""
    event_metadata: bool = False
    """Events have `metadata_json`."""
    draws_arrows: bool = True
    """A trace has arrows from forward to backward calls."""
    keeps_values: bool = True
    """The values of arguments that are lists of numbers are shown."""


class Results:
    """Answers from the reels of one cycle, or of several if their events are to be kept."""

    def __init__(self, options: ResultOptions) -> None:
        self.trace_id: str | None = None
        self._options = options
        self._reels: list[Reel] = []
        self._events: EventList | None = None
        self._kineto_results: KinetoResults | None = None
        self._stats = ProfilerStats()

    def begin(self) -> None:
        """A cycle begins: torch.profiler asks for this switch as it records, and for that of arrows when it ends."""
        self._options = replace(self._options, keeps_values=_core.keeps_values())

    def add(self, reel: Reel) -> None:
        """Another cycle has ended."""
        self._reels.append(reel)
        self._events = self._kineto_results = None
        process = reel.process_rows()
        if process:
            self._stats.profiling_window_duration_sec = (process[0]["end_ns"] - process[0]["start_ns"]) / 1e9
        self._options = replace(self._options, draws_arrows=_core.draws_backward_arrows())

    def show_only(self, categories: frozenset[str] | None) -> None:
        """Traces show these categories only, or all."""
        self._options = replace(self._options, categories=categories)

    def took(self, what: str, began_ns: int) -> None:
        """Keep how long a call took, under torch.profiler's name for it."""
        setattr(self._stats, what, max(1, (time.perf_counter_ns() - began_ns) // 1000))

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
        return [self._calls_of(reel) for reel in reversed(self._recorded())]

    def _calls_of(self, reel: Reel, every: bool = False) -> tuple[pa.Table, CallDetails]:
        options = self._options
        moved = moved_steps(reel) if options.adjust_steps else None
        calls = read_calls(
            reel,
            python_calls=options.with_stack,
            flops=options.with_flops,
            memory=options.profile_memory,
            every=every,
            moved=moved,
        )
        return calls, CallDetails(reel, keeps_values=options.keeps_values)

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
            began = time.perf_counter_ns()
            recorded = self._calls()
            self.took("parse_kineto_call_duration_us", began)
            self._events = self._make_events(recorded, self._options.timeout_s)
            self.took("function_events_build_tree_call_duration_us", began)
            self._stats.number_of_events = len(self._events)
        return self._events

    def _make_events(self, recorded: list[tuple[pa.Table, CallDetails]], timeout_s: float | None) -> EventList:
        metadata = self._options.event_metadata
        lists = [event_list(*one, timeout_s, metadata=metadata, **self._shown) for one in recorded]
        for older in lists[1:]:
            lists[0].extend(older)
        return lists[0]

    def _parse_kineto_results(self, result: Any, timeout_s: float | None = None) -> EventList:
        """The events of the last cycle, those that are made in time: a private method of torch's."""
        check_timeout("timeout_s", timeout_s)
        return self._make_events([self._calls_of(self.reel)], timeout_s)

    @property
    def kineto_results(self) -> KinetoResults:
        """The events of the last cycle in the form that torch's own tools read: _pattern_matcher, BasicEvaluation."""
        if self._kineto_results is None:
            self._kineto_results = KinetoResults(*self._calls_of(self.reel, every=True))
        return self._kineto_results

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
        options = self._options
        reel = self.reel
        modules = module_names(reel)
        shown = TraceOptions(
            categories=options.categories,
            steps=False,
            old_blocks=False,
            overload_names=options.overload_names,
            backward_arrows=options.draws_arrows,
            values=options.keeps_values,
            moved=moved_steps(reel) if options.adjust_steps else None,
            python_name=python_name,
            module_names=modules,
            module_numbers={id: module_number(name) for id, name in modules.items()},
        )
        write_chrome(reel, Path(path), shown)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the stacks of the last cycle with their time, for flame graphs."""
        reel = self.reel
        if not self._options.with_stack:
            raise OptionError("There are no stacks to export: give with_stack=True to profile().")
        write_stacks(reel, Path(path), metric)
