"""What may watch a program while a sample of it is taken: nothing, torchreel, torch.profiler, an empty callback.

An observer is a context; its value is a function that brings to rest what was recorded so far, so that a sample can
count that too. What it costs to begin and to end an observation lies outside of the sample.
"""

from __future__ import annotations

import contextlib
import gc
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

import torchreel
from benchmarks.native import empty_callback
from torchreel import _core

Flush = Callable[[], None]


def _nothing_to_flush() -> None:
    pass


@dataclass(frozen=True)
class Nothing:
    """The bare program."""

    name: str = "nothing"

    @contextlib.contextmanager
    def watch(self) -> Iterator[Flush]:
        yield _nothing_to_flush


@dataclass(frozen=True)
class EmptyCallback:
    """The least that any observer of torch's calls can cost; with `inputs`, of those that see arguments."""

    inputs: bool = False

    @property
    def name(self) -> str:
        return f"an empty callback{' that asks for inputs' if self.inputs else ''}"

    @contextlib.contextmanager
    def watch(self) -> Iterator[Flush]:
        empty_callback().attach(self.inputs)
        try:
            yield _nothing_to_flush
        finally:
            empty_callback().detach()


@dataclass(frozen=True)
class TorchProfiler:
    """torch.profiler with the CPU activity. It keeps what it recorded in memory: there is nothing to flush."""

    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"torch.profiler({', '.join(self.options)})"

    @contextlib.contextmanager
    def watch(self) -> Iterator[Flush]:
        profiler = profile(activities=[ProfilerActivity.CPU], **dict.fromkeys(self.options, True))
        profiler.start()
        try:
            yield _nothing_to_flush
        finally:
            profiler.stop()
            # It is part of a cycle, and holds all that it recorded: hundreds of megabytes after some windows.
            del profiler
            gc.collect()


@dataclass(frozen=True)
class Torchreel:
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"torchreel({', '.join(self.options)})"

    @contextlib.contextmanager
    def watch(self) -> Iterator[Flush]:
        directory = Path(tempfile.mkdtemp(prefix="torchreel-bench-"))
        try:
            with _allocator_of_recordings("memory" in self.options):
                options = torchreel.RecordOptions(**dict.fromkeys(self.options, True))  # type: ignore[arg-type]
                recorder = torchreel.Recorder(directory / "run.reel", options)
                recorder.start()
                try:
                    yield _core.flush
                finally:
                    recorder.stop()
                if recorder.lost_events:
                    raise RuntimeError(f"{self.name} lost {recorder.lost_events} events: the sample is worth nothing.")
        finally:
            shutil.rmtree(directory)


@dataclass(frozen=True)
class IdleAllocator:
    """Nothing is recorded, but a recording with memory has left its allocator in place."""

    name: str = "nothing, after a recording with memory"

    @contextlib.contextmanager
    def watch(self) -> Iterator[Flush]:
        with _allocator_of_recordings(True):
            yield _nothing_to_flush


Observer = Nothing | EmptyCallback | TorchProfiler | Torchreel | IdleAllocator

_recording_allocator: int | None = None


@contextlib.contextmanager
def _allocator_of_recordings(wanted: bool) -> Iterator[None]:
    """torchreel's allocator stays once it was set; other samples are to be free of it."""
    global _recording_allocator
    own = empty_callback().allocator()
    if wanted and _recording_allocator is not None:
        empty_callback().set_allocator(_recording_allocator)
    try:
        yield
    finally:
        if wanted:
            _recording_allocator = empty_callback().allocator()
        if empty_callback().allocator() != own:
            empty_callback().set_allocator(own)


def writing_time(observer: Observer, work: Callable[[], None]) -> float:
    """CPU nanoseconds that bringing to disk takes, all threads together: while work runs, and of the rest after it.

    Nobody but torchreel writes while it records.
    """
    if not isinstance(observer, Torchreel):
        return 0
    with observer.watch() as flush:
        torch.add(torch.ones(1), torch.ones(1))
        flush()
        others = time.process_time_ns() - time.thread_time_ns()
        work()
        others = time.process_time_ns() - time.thread_time_ns() - others
        start = time.process_time_ns()
        flush()
        return others + time.process_time_ns() - start


def settle() -> None:
    """Everything that happens once in a process, before anything is measured."""
    torch.set_num_threads(1)
    for options in ((), ("shapes", "memory", "stacks")):
        with Torchreel(options).watch() as flush:
            torch.add(torch.ones(1), torch.ones(1))
            flush()
    for options in ((), ("record_shapes", "profile_memory", "with_stack")):
        with TorchProfiler(options).watch():
            torch.add(torch.ones(1), torch.ones(1))
    with EmptyCallback().watch():
        torch.add(torch.ones(1), torch.ones(1))
    # No collection within a window; between windows they have only what is new to look at.
    gc.collect()
    gc.freeze()
    gc.disable()
