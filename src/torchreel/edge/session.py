"""The one native recording that all edge profilers of a process share, however many threads have one.

Each profiled model has a number in it. When a profiler ends it gets its model's share of what was recorded; the
recording itself ends with the last of them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from torchreel import _core
from torchreel.edge.share import BEGIN_MARK, share_of
from torchreel.errors import AlreadyRecordingError, EdgeError
from torchreel.record import process
from torchreel.record.modules import ModuleNames
from torchreel.record.recorder import current_recorder
from torchreel.reel import joining, spool

Tables = dict[str, pa.Table]

# Guards what follows, and the state of the session.
_lock = threading.Lock()
_running: Session | None = None


def _forget() -> None:
    """In a fork: the recording is its parent's."""
    global _lock, _running
    _lock, _running = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)


@dataclass(frozen=True)
class Wanted:
    """What is recorded of a model."""

    module: torch.nn.Module | None
    """If given, the calls of the modules in it, too."""
    shapes: bool
    stacks: bool
    """Python's."""
    memory: bool
    nested: bool
    """Ops that ops call, too."""
    handles: str
    arities: Mapping[int, int]
    """As its adapter has them."""


class Session:
    """A recording of models. Models may come and go while it runs."""

    def __init__(self, counters: tuple[str, ...]) -> None:
        self.counters = counters
        self._home = Path(tempfile.mkdtemp(prefix="torchreel-edge-"))
        self._directory = joining.claim_directory(self._home, process.describe_process())
        self._models = 0
        self._present: set[int] = set()
        self._names = ModuleNames()
        self._watches_modules = False
        process.begin_models(self._directory, counters)

    def _name_call(self, module: torch.nn.Module | None, name: str) -> tuple[int, int]:
        """The ids of a name for the model's calls, and of the model among modules."""
        if module is not None:
            if not self._watches_modules:
                _core.watch_calls(False, torch.nn.Module.__call__.__code__, self._names)
                self._watches_modules = True
            return self._names(module), self._names.number(module)
        return self._names.define(name)

    def add(self, name: str, wanted: Wanted) -> Watched:
        """A further model."""
        self._models += 1
        call_name, number = self._name_call(wanted.module, name)
        if wanted.memory:
            _core.watch_model_allocations(True)
        _core.mark(f"{BEGIN_MARK}{self._models}")
        native = _core.Model(
            id=self._models,
            name=call_name,
            shapes=wanted.shapes,
            stacks=wanted.stacks,
            counters=bool(self.counters),
            memory=wanted.memory,
            nested=wanted.nested,
            handles=wanted.handles,
            arities=dict(wanted.arities),
        )
        self._present.add(self._models)
        return Watched(self, native, self._models, number, wanted.module is not None)

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
        return share_of(tables, model.id, model.module, model.with_modules) if wanted else {}

    def _stop(self, last: Watched) -> None:
        global _running
        _running = None
        last.problem = process.end()["error"]

    def end_if_empty(self) -> None:
        """A model could not be added: nothing is left of a session that was begun for it."""
        global _running
        if not self._present:
            _running = None
            process.end()
            shutil.rmtree(self._home, ignore_errors=True)


class Watched:
    """One model in a session. Its calls are told by enter() and leave(), on their thread."""

    def __init__(self, session: Session, native: _core.Model, id: int, module: int, with_modules: bool) -> None:
        self._session = session
        self.native = native
        self.id = id
        self.module = module
        self.with_modules = with_modules
        self.problem = ""

    def end(self) -> Tables:
        """End the model's recording, and return its share."""
        return self._session.remove(self, wanted=True)

    def abandon(self) -> None:
        self._session.remove(self, wanted=False)


def _already_recording() -> str:
    recorder = current_recorder()
    if recorder is None or not recorder.from_outside:
        return (
            "A recording of this process is running, and an edge profiler needs the recorder for itself: stop it "
            "first. It goes on unharmed."
        )
    return (
        f"This program is recorded from outside, into {recorder.path}, and an edge profiler needs the recorder for "
        "itself: run the program without `torchreel record`, or profile the model's file with `torchreel edge`. The "
        "recording goes on unharmed."
    )


def watch(name: str, counters: tuple[str, ...], wanted: Wanted) -> Watched:
    """Record one more model, in the session that runs or in a new one."""
    global _running
    with _lock:
        if _running is None:
            if _core.recording():
                raise AlreadyRecordingError(_already_recording())
            _running = Session(counters)
        elif _running.counters != counters:
            raise EdgeError(
                f"Another thread's edge profiler counts {', '.join(_running.counters) or 'no events'}, and those that "
                f"run at the same time must count the same: give events={_running.counters!r}, or wait for its end."
            )
        try:
            return _running.add(name, wanted)
        except BaseException:
            _running.end_if_empty()
            raise
