"""The adapter of ExecuTorch programs: a module of its Python runtime, or a Program of executorch.runtime.

The runtime measures its ops itself, if the program was loaded with enable_etdump=True. Where they stand in the source
is known from the ETRecord that lies beside the program's file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchreel.edge.formats.adapter import Adapter, BackendEvent, Calls, Deployed, Location, Undo
from torchreel.edge.formats.executorch.classes import watch_module, watch_program
from torchreel.edge.formats.executorch.etdump import Run, read_runs
from torchreel.edge.formats.executorch.events import RunEvents
from torchreel.edge.formats.executorch.loading import load_measuring
from torchreel.edge.formats.executorch.source import Source
from torchreel.edge.formats.executorch.watch import Call, Watch
from torchreel.errors import EdgeError

_MODULE, _PROGRAM = "ExecuTorchModule", "Program"
# Parts of a program, which do not give its measurements.
_PARTS = ("ExecuTorchMethod", "ExecuTorchProgram", "Method")
_ROOMS = ("executorch.extension.pybindings", "executorch.runtime")


def adapts(module: Any) -> bool:
    kind = type(module)
    return kind.__module__.startswith(_ROOMS) and kind.__name__ in (_MODULE, _PROGRAM, *_PARTS)


def load(path: Path) -> Deployed:
    """A .pte file, with its ops measured."""
    return load_measuring(path)


class ExecuTorch(Adapter):
    """A program that was loaded with its event tracer."""

    format = "ExecuTorch"

    def __init__(self, module: Any) -> None:
        _check_measures(module)
        self._module = module
        self._source = Source(module)
        self._watch: Watch | None = None
        path = self._source.path
        self.name = "program" if path is None else path.stem
        self.remark = self._source.remark

    @property
    def runnable(self) -> Any:
        return self._module

    @property
    def planned_bytes(self) -> int | None:
        """The memory that was planned for the program's tensors at export; None if its file is not known."""
        methods = self._source.methods.values()
        return max((method.planned_bytes for method in methods), default=None)

    def watch(self, calls: Calls) -> Undo:
        watched = watch_program if type(self._module).__name__ == _PROGRAM else watch_module
        watch, write = watched(self._module)
        watch.begin(calls)
        self._watch = watch
        return lambda: watch.end(write)

    def locations(self, handles: Sequence[int]) -> dict[int, Location]:
        """Each method counts its handles from one: where two have the same, the first method's is given."""
        found: dict[int, Location] = {}
        for recorded in self._source.recorded.values():
            for handle in handles:
                location = next((node.location for node in recorded.nodes.get(handle, ()) if node.location), None)
                if location is not None:
                    found.setdefault(handle, location)
        return found

    def locations_of_backend(self, handles: Sequence[int]) -> dict[int, Location]:
        return self.locations(handles)

    def events(self) -> list[list[BackendEvent]]:
        if self._watch is None:
            return []
        runs = [run for dump in self._watch.dumps for run in read_runs(dump)]
        calls = self._watch.calls
        found = runs_by_time(runs, calls) if self._watch.has_clock else runs_by_count(runs, calls)
        methods = {call.method: self._events_of(call.method) for call in calls}
        return [[] if run is None else methods[call.method].of(run) for call, run in zip(calls, found, strict=True)]

    def _events_of(self, method: str) -> RunEvents:
        return RunEvents(self._source.methods.get(method), self._source.recorded.get(method))


def runs_by_time(runs: Sequence[Run], calls: Sequence[Call]) -> list[Run | None]:
    """The run of each call: there are others, of before it was watched."""
    ordered = sorted(runs, key=_start)
    found: list[Run | None] = []
    for call in calls:
        index = bisect_left(ordered, call.start, key=_start)
        is_within = index < len(ordered) and ordered[index].end_ns <= call.end
        found.append(ordered[index] if is_within else None)
    return found


def _start(run: Run) -> int:
    return run.start_ns


def runs_by_count(runs: Sequence[Run], calls: Sequence[Call]) -> list[Run | None]:
    """Where the runtime's clock cannot be read: calls that came back have run, and no other came after them."""
    returned = [call for call in calls if call.has_returned]
    last = dict(zip(map(id, returned[::-1]), runs[::-1], strict=False))
    return [last.get(id(call)) for call in calls]


def _check_measures(module: Any) -> None:
    kind = type(module).__name__
    if kind in _PARTS:
        raise EdgeError(
            f"A {kind} of ExecuTorch does not give its measurements: give the Program that it belongs to, loaded with "
            "executorch.runtime.Runtime.get().load_program(path, enable_etdump=True)."
        )
    if kind == _PROGRAM and not module._program.has_etdump():
        raise EdgeError(
            "The ExecuTorch program does not measure its ops: load it with "
            "executorch.runtime.Runtime.get().load_program(path, enable_etdump=True)."
        )
    if kind == _MODULE and not module.has_etdump():
        raise EdgeError(
            "The ExecuTorch module does not measure its ops: load it with "
            "_load_for_executorch(path, enable_etdump=True)."
        )
