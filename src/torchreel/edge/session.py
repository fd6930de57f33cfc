"""The one native recording that all edge profilers of a process share, however many threads have one.

Each profiled model has a number in it. When a profiler ends it gets its model's share of what was recorded; the
recording itself ends with the last of them.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
import torch

from torchreel import _core
from torchreel.edge.share import share_of
from torchreel.errors import AlreadyRecordingError, EdgeError
from torchreel.record import process
from torchreel.record.modules import ModuleNames
from torchreel.reel import spool

Tables = dict[str, pa.Table]

# Guards what follows, and the state of the session.
_lock = threading.Lock()
_running: Session | None = None


class Session:
    """A recording of models. Models may come and go while it runs."""

    def __init__(self, counters: tuple[str, ...]) -> None:
        self.counters = counters
        self._home = Path(tempfile.mkdtemp(prefix="torchreel-edge-"))
        self._directory = process.process_directory(self._home)
        self._directory.mkdir()
        self._models = 0
        self._present: set[int] = set()
        self._names = ModuleNames()
        self._watches_modules = False
        process.begin_models(self._directory, counters)
        _core.mark("torchreel::models")  # a recording of nothing at all would leave no file to read

    def _name_call(self, module: torch.nn.Module | None, name: str) -> tuple[int, int]:
        """The ids of a name for the model's calls, and of the model among modules."""
        if module is not None:
            if not self._watches_modules:
                _core.watch_calls(False, torch.nn.Module.__call__.__code__, self._names)
                self._watches_modules = True
            return self._names(module), self._names.number(module)
        return self._names.define(name)

    def add(
        self, name: str, *, module: torch.nn.Module | None, shapes: bool, stacks: bool, memory: bool, handles: str
    ) -> Watched:
        """A further model. With `module`, calls of the modules in it are recorded, too."""
        self._models += 1
        call_name, number = self._name_call(module, name)
        if memory:
            _core.watch_model_allocations(True)
        self._present.add(self._models)
        native = _core.Model(
            id=self._models,
            name=call_name,
            shapes=shapes,
            stacks=stacks,
            counters=bool(self.counters),
            memory=memory,
            handles=handles,
        )
        return Watched(self, native, self._models, number)

    def remove(self, model: Watched, wanted: bool) -> Tables:
        """The model is no longer recorded: gives its share, if it is wanted."""
        with _lock:
            self._present.discard(model.id)
            if self._present:
                _core.flush()
            else:
                self._stop(model)
            try:
                tables = spool.read(self._directory) if wanted else {}
            finally:
                if not self._present:
                    shutil.rmtree(self._home, ignore_errors=True)
        return share_of(tables, model.id, model.module) if wanted else {}

    def _stop(self, last: Watched) -> None:
        global _running
        _running = None
        last.problem = process.end()["error"]


class Watched:
    """One model in a session. Its calls are told by enter() and leave(), on their thread."""

    def __init__(self, session: Session, native: _core.Model, id: int, module: int) -> None:
        self._session = session
        self.native = native
        self.id = id
        self.module = module
        self.problem = ""

    def end(self) -> Tables:
        """Its share of the recording, which is over for it."""
        return self._session.remove(self, wanted=True)

    def abandon(self) -> None:
        self._session.remove(self, wanted=False)


def watch(
    name: str,
    counters: tuple[str, ...],
    *,
    module: torch.nn.Module | None,
    shapes: bool,
    stacks: bool,
    memory: bool,
    handles: str,
) -> Watched:
    """Record one more model, in the session that runs or in a new one."""
    global _running
    with _lock:
        if _running is None:
            if _core.recording():
                raise AlreadyRecordingError(
                    "A recording of this process is running, and an edge profiler needs the recorder for itself: "
                    "stop it first. It goes on unharmed."
                )
            _running = Session(counters)
        elif _running.counters != counters:
            raise EdgeError(
                f"Another thread's edge profiler counts {', '.join(_running.counters) or 'no events'}, and those that "
                f"run at the same time must count the same: give events={_running.counters!r}, or wait for its end."
            )
        return _running.add(name, module=module, shapes=shapes, stacks=stacks, memory=memory, handles=handles)
