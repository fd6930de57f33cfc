"""EdgeProfiler: one deployed model, profiled for as long as a `with` block lasts."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from torchreel import _core
from torchreel.edge import session
from torchreel.edge.backends import Reported, ReportedMemory
from torchreel.edge.entry import open_entry
from torchreel.edge.formats import eager
from torchreel.edge.formats.adapter import Undo
from torchreel.edge.formats.formats import adapter_for
from torchreel.edge.reported import address, check_numbers, check_texts, device_name, nanoseconds
from torchreel.edge.result import Wanted, make_reel
from torchreel.errors import EdgeError, OptionError, TorchreelError
from torchreel.export import export
from torchreel.record.options import RecordOptions
from torchreel.reel import Reel
from torchreel.reel.meta import read_meta

_REEL = ".reel"


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.begun: EdgeProfiler | None = None
        self.calling: list[EdgeProfiler] = []
        """The profilers whose models the thread is calling, the innermost last."""


_of_thread = _OfThread()


def current_edge_profiler() -> EdgeProfiler | None:
    """The profiler whose model runs on this thread, else the one that was begun on it, else None."""
    return _of_thread.calling[-1] if _of_thread.calling else _begun_here()


# Those that have begun: a fork must forget them.
_begun: weakref.WeakSet[EdgeProfiler] = weakref.WeakSet()


def _forget_all() -> None:
    """In a fork: the profiles are its parent's, and go on there."""
    _core.forget_backend_reports()
    for profiler in list(_begun):
        profiler._watched = None
        profiler._ended = True
    while _of_thread.calling:
        _of_thread.calling[-1].leave()


os.register_at_fork(after_in_child=_forget_all)


def _begun_here() -> EdgeProfiler | None:
    """The profiler that was begun on this thread, unless it has ended, on whichever thread."""
    if _of_thread.begun is not None and _of_thread.begun._ended:
        _of_thread.begun = None
    return _of_thread.begun


class EdgeProfiler:
    """Profiles one deployed model: what it does, and nothing that the program does around it, on whichever thread.

    `trace_path` gets a Kineto trace, and the reel is beside it (run.json, run.reel). A path that ends in .reel gets
    the reel alone; without a path the reel lasts as long as somebody has it. An older trace or reel of a profiler
    under that name is replaced.

    An op is what the model calls: aten::conv2d, and not the aten::convolution in it, which `nested` records too. While
    an op of the model runs, other observers of torch's calls on its thread may not see what is within it, either.
    """

    def __init__(
        self,
        module: Any,
        trace_path: str | os.PathLike[str] = "",
        report_input_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        events: Sequence[str] = (),
        adjust_timestamps: bool = False,
        *,
        nested: bool = False,
    ) -> None:
        _refuse_second()
        if isinstance(events, str):
            raise OptionError(f"events={events!r} is one text: give a list of counters, such as [{events!r}].")
        self._adapter = adapter_for(module)
        self._adapter.check(locations=with_stack or with_modules)
        self._options = RecordOptions(
            shapes=report_input_shapes or with_flops,
            memory=profile_memory,
            stacks=with_stack,
            modules=with_modules,
            flops=with_flops,
            counters=tuple(events),
        )
        self._options.check_machine()
        self._adjust = adjust_timestamps
        self._nested = nested
        self._removal: weakref.finalize[Any, Any] | None = None
        self._trace, self._reel_path = self._paths(trace_path)
        self._watched: session.Watched | None = None
        self._native: _core.Model | None = None
        self._undo: Undo | None = None
        self._result: Reel | None = None
        self._process: int | None = None
        self._ended = False
        self._began_ns = 0
        self._calls = 0
        self._first_call_ns = 0
        self._events: list[Reported] = []
        self._memory: list[ReportedMemory] = []

    def _paths(self, given: str | os.PathLike[str]) -> tuple[Path | None, Path]:
        """Where the trace and the reel go, after a look at what is there."""
        text = os.fspath(given) if isinstance(given, os.PathLike) else given
        if not isinstance(text, str) or "\0" in text:
            raise OptionError(f"trace_path={given!r} is no path: give the name of a file, or nothing for no trace.")
        if not text:
            home = tempfile.mkdtemp(prefix="torchreel-edge-")
            self._removal = weakref.finalize(self, _remove, home, os.getpid())
            return None, Path(home) / "profile.reel"
        path = Path(text)
        if not path.parent.is_dir():
            raise OptionError(f"{path} cannot be written because there is no directory {path.parent}: make it first.")
        if path.suffix == _REEL:
            trace, reel = None, path
        else:
            if path.is_dir():
                raise OptionError(f"{path} is a directory: name the file for the trace in it.")
            trace, reel = path, path.with_name(path.name.removesuffix(".gz")).with_suffix(_REEL)
        if reel.exists() and not (_is_of_profiler(reel) or _is_empty(reel)):
            raise OptionError(
                f"{reel} exists and was not made by an edge profiler, so it is not replaced: give another trace_path."
            )
        return trace, reel

    @property
    def format(self) -> str:
        """The format of the model, as its users call it."""
        return self._adapter.format

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._adapter.name

    @property
    def remark(self) -> str | None:
        """What could not be known of the model, and why."""
        return self._adapter.remark

    @property
    def module(self) -> Any:
        """What to call to run the model: for an ExportedProgram, a module of it."""
        return self._adapter.runnable

    def __enter__(self) -> EdgeProfiler:
        _refuse_second()
        if self._process is not None:
            raise EdgeError("This edge profiler has already profiled: make a new one for a new profile.")
        options, adapter = self._options, self._adapter
        is_eager = isinstance(adapter, eager.Eager)
        wants_locations = options.stacks or options.modules
        wanted = session.Wanted(
            module=adapter.runnable if is_eager and options.modules else None,
            shapes=options.shapes,
            # A line of generated code says in which module it is, too.
            stacks=adapter.called_from_python and (options.stacks if is_eager else wants_locations),
            memory=options.memory,
            nested=self._nested,
            handles=adapter.handles if wants_locations or adapter.handles == "lite" else "",
            arities=adapter.arities,
        )
        self._watched = session.watch(adapter.name, options.counters, wanted)
        self._native = self._watched.native
        self._process = os.getpid()
        _of_thread.begun = self
        _begun.add(self)
        self._began_ns = time.time_ns()
        atexit.register(self._close)
        try:
            open_entry()
            self._native.begin_reports()
            self._undo = adapter.watch(self)
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._close()
        except TorchreelError as problem:
            if error is None:
                raise
            print(f"torchreel: {problem}", file=sys.stderr)  # the program's own error comes first

    def _abandon(self) -> None:
        atexit.unregister(self._close)
        self._ended = True
        _begun_here()
        if self._watched is not None:
            self._watched.native.end_reports()
            self._watched.abandon()
            self._watched = None

    def _close(self) -> None:
        """Stop, if that was not done, and write the trace."""
        if os.getpid() != self._process:  # a fork: the profile is its parent's
            return
        if self._watched is not None:
            self.disable()
        atexit.unregister(self._close)
        if self._trace is not None and self._result is not None:
            trace, self._trace = self._trace, None
            try:
                export(self._result, trace, to="chrome")
            except OSError as error:
                raise EdgeError(
                    f"The trace cannot be written to {trace}: {error.strerror or error}. Write it elsewhere with "
                    f"`torchreel export {self._reel_path} --to chrome`."
                ) from None

    # What adapters tell: see adapter.Calls.

    def enter(self) -> None:
        watched = self._watched
        if watched is not None:
            _of_thread.calling.append(self)
            self._calls += 1
            self._first_call_ns = self._first_call_ns or time.time_ns()
            watched.native.enter()

    def leave(self) -> None:
        calling = _of_thread.calling
        while self in calling and self._native is not None:  # with what was left by an interrupt within it
            self._native.leave()
            if calling.pop() is self:
                break

    def script_locations(self) -> list[tuple[list[str], list[tuple[str, int, str]], list[str]]]:
        try:
            return [] if self._native is None else self._native.locations()
        except UnicodeDecodeError:  # of a damaged file
            return []

    def disable(self) -> Reel:
        """Stop profiling, and give the reel. The trace is written when the block ends."""
        if self._result is not None:
            raise EdgeError("The edge profiler is already disabled: its reel is what result() gives.")
        watched = self._watched
        if self._process not in (None, os.getpid()):
            raise EdgeError("The edge profiler was begun by the process that forked this one: disable it there.")
        if watched is None:
            raise EdgeError("The edge profiler has not begun: use it as `with EdgeProfiler(...) as profiler:`.")
        if self._undo is not None:
            self._undo()
        while self in _of_thread.calling:
            self.leave()
        self._ended = True
        _begun_here()
        self._watched = None
        watched.native.end_reports()
        self._add_native_reports(watched.native)
        tables = watched.end()
        self._warn(watched)
        wanted = Wanted(self._options.modules, self._options.stacks, self._options.flops, self._adjust)
        try:
            self._remove_older()
            self._result = make_reel(
                self._reel_path,
                tables,
                self._adapter,
                watched.module,
                wanted,
                self._events,
                self._memory,
                self._options.to_json(),
            )
        except OSError as error:
            raise EdgeError(
                f"The profile cannot be written to {self._reel_path}: {error.strerror or error}. Give another "
                "trace_path."
            ) from None
        if self._removal is not None:  # from now on it lasts as long as somebody has the reel
            self._removal.detach()
            weakref.finalize(self._result, _remove, str(self._reel_path.parent), os.getpid())
        return self._result

    def discard(self) -> None:
        """Stop profiling, with no result: nothing is written. For a profile that nobody waits for any more."""
        if self._undo is not None and self._watched is not None:
            self._undo()
        while self in _of_thread.calling:
            self.leave()
        self._abandon()

    def _warn(self, watched: session.Watched) -> None:
        if watched.problem:
            warnings.warn(f"The profile is not whole, because the disk refused: {watched.problem}.", stacklevel=4)
        if not self._calls and not self._events:
            warnings.warn(
                f"The model {self.name} was not called while it was profiled, so the profile is empty: call it itself, "
                "not a method of it, within the block.",
                stacklevel=4,
            )

    def _remove_older(self) -> None:
        if self._reel_path.is_symlink():
            self._reel_path.unlink()
        elif self._reel_path.exists() and not _is_empty(self._reel_path):
            shutil.rmtree(self._reel_path)

    def result(self) -> Reel:
        """The reel, after disable() or after the block."""
        if self._result is None:
            raise EdgeError("The edge profiler has not been disabled, so it has no result yet: call disable() first.")
        return self._result

    def record_backend_event(
        self, start_us: float, end_us: float, debug_handle: int, event_name: str, backend_name: str
    ) -> None:
        """An op that a backend ran, in microseconds since the epoch; with adjust_timestamps, on any clock."""
        self._require_running(f"The event {event_name!r} of {backend_name!r}")
        check_texts(event_name=event_name, backend_name=backend_name)
        check_numbers(debug_handle=debug_handle)
        told = time.time_ns(), threading.get_native_id()
        self._events.append(self._event(start_us, end_us, debug_handle, event_name, backend_name, *told))

    def _event(
        self,
        start_us: float,
        end_us: float,
        debug_handle: int,
        event_name: str,
        backend_name: str,
        told_ns: int,
        os_thread: int,
    ) -> Reported:
        """An event that makes sense in this profile; EdgeError if it does not."""
        start, end = nanoseconds("start_us", start_us), nanoseconds("end_us", end_us)
        if end < start:
            raise EdgeError(
                f"The event {event_name!r} of {backend_name!r} ends at {end_us} µs, before it starts at {start_us} µs: "
                "give the start first."
            )
        if not self._adjust and not (self._began_ns - _SLACK_NS <= start and end <= told_ns + _SLACK_NS):
            raise EdgeError(
                f"The event {event_name!r} of {backend_name!r}, from {start_us} to {end_us} µs, lies outside of the "
                f"profile, which runs since {self._began_ns / 1000:.0f} µs: give microseconds since the epoch, or let "
                "another clock be aligned with adjust_timestamps=True."
            )
        if self._adjust and not 0 < self._first_call_ns <= told_ns:
            raise EdgeError(
                f"The event {event_name!r} of {backend_name!r} comes before the first call of the model, so its clock "
                "cannot be aligned: report it within the call, or after it."
            )
        return Reported(start, end, debug_handle, event_name, backend_name, told_ns, os_thread)

    def _add_native_reports(self, native: _core.Model) -> None:
        """What backends in C and C++ told. They cannot be told of an error, so a warning tells what was left out."""
        refused: list[str] = []
        for start_us, end_us, handle, name, backend, *told in native.reported_events():
            try:
                self._events.append(self._event(start_us, end_us, handle, _text(name), _text(backend), *told))
            except TorchreelError as error:
                refused.append(str(error))
        for address_, bytes_, allocated, reserved, device, told_ns, os_thread in native.reported_memory():
            try:
                check_numbers(total_allocated=allocated, total_reserved=reserved)
                where = device_name(_text(device))
                self._memory.append(ReportedMemory(address_, bytes_, allocated, reserved, where, told_ns, os_thread))
            except TorchreelError as error:
                refused.append(str(error))
        self._events.sort(key=lambda event: event.told_ns)
        self._memory.sort(key=lambda event: event.told_ns)
        if refused:
            warnings.warn(f"{len(refused)} reports of backends were left out. The first: {refused[0]}", stacklevel=4)

    def record_backend_memory_event(
        self, ptr: int, alloc_size: int, total_allocated: int, total_reserved: int, device: Any = "cpu"
    ) -> None:
        """Memory that a backend took, or gave back where alloc_size is negative."""
        self._require_running(f"The memory event of {alloc_size} bytes")
        check_numbers(alloc_size=alloc_size, total_allocated=total_allocated, total_reserved=total_reserved)
        self._memory.append(
            ReportedMemory(
                address(ptr),
                alloc_size,
                total_allocated,
                total_reserved,
                device_name(device),
                time.time_ns(),
                threading.get_native_id(),
            )
        )

    def _require_running(self, what: str) -> None:
        if self._watched is None:
            raise EdgeError(f"{what} was reported outside of the profile: report it while the model is profiled.")


# The recorder's clock is tied to the wall's once, to within some microseconds.
_SLACK_NS = 1_000_000


def _text(given: bytes) -> str:
    return given.decode(errors="replace")


def _refuse_second() -> None:
    running = _begun_here()
    if running is not None:
        raise EdgeError(
            f"An edge profiler of {running.name} is already profiling on this thread, and there is one per thread: end "
            "it before you begin another. It goes on unharmed."
        )


def _remove(home: str, process: int) -> None:
    if os.getpid() == process:  # not in a fork, whose parent still needs it
        shutil.rmtree(home, ignore_errors=True)


def _is_empty(reel: Path) -> bool:
    """A directory that was made for the reel."""
    return reel.is_dir() and not any(reel.iterdir())


def _is_of_profiler(reel: Path) -> bool:
    try:
        return "edge" in read_meta(reel)
    except TorchreelError:
        return False
