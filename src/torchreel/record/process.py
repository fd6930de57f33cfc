"""One process's part of a recording: the native recorder, switched on and off for a directory of the reel."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import runpy
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torchreel import _core
from torchreel._cpython.interpreter import known_thread
from torchreel._torch.profiler import let_torch_open_ranges, torch_profiler_is_on
from torchreel.record import rpc
from torchreel.record.modules import ModuleNames
from torchreel.record.old_blocks import define_old_blocks
from torchreel.record.options import RecordOptions
from torchreel.record.source_files import program_directory
from torchreel.reel import spool
from torchreel.reel.job import current_rank

_PACKAGE = str(Path(__file__).resolve().parents[1])


def describe_process() -> dict[str, Any]:
    """What the process says about itself, as far as it is known now."""
    current = current_rank()
    return {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "host": socket.gethostname(),
        "rank": current.rank,
        "world_size": current.world_size,
        "local_rank": current.local_rank,
        "command": " ".join(sys.argv) or None,
        "torch_version": torch.__version__,
        "python_version": platform.python_version(),
        "clock": "time stamp counter" if platform.machine() == "x86_64" else "steady clock",
    }


def _thread_name() -> str:
    thread = known_thread()
    return thread.name if thread is not None else ""


def _runner_files() -> list[str]:
    """Outermost frames of these files belong to a runner, not to the user's program."""
    import click

    return [
        _PACKAGE,
        str(Path(click.__file__).parent),
        str(runpy.__file__),
        "<frozen runpy>",
        str(Path(sys.prefix, "bin", "torchreel")),
    ]


class _Enabled:
    """Whether it is we who said to torch that a profiler runs."""

    by_us = False


def _let_torch_open_ranges() -> None:
    """PyTorch's own code asks this before it opens its ranges: compiled code and the compiler, above all."""
    let_torch_open_ranges(True)
    _Enabled.by_us = True


def _after_fork() -> None:
    """In a forked child: the recording is the parent's. A child that is recorded too begins its own."""
    if _Enabled.by_us:
        _Enabled.by_us = False
        _core.hide_profiler()
        let_torch_open_ranges(torch_profiler_is_on())


# As soon as this is imported: what begins the recording of a child is registered later, and runs after it.
os.register_at_fork(after_in_child=_after_fork)


class _Program:
    """Where the source of the recorded program is."""

    directory: Path | None = None  # that of __main__, or the one that the recorder was given
    begun_in: Path | None = None  # the working directory then: a program in a notebook has no other

    @classmethod
    def begins(cls, directory: Path | None) -> None:
        cls.directory = directory or program_directory()
        with contextlib.suppress(OSError):
            cls.begun_in = Path.cwd()

    @classmethod
    def said(cls) -> dict[str, str]:
        # A child that multiprocessing starts anew knows its script when that is imported, after torch.
        directory = cls.directory or program_directory() or cls.begun_in
        return {} if directory is None else {spool.PROGRAM_DIRECTORY: str(directory)}


def begin(directory: Path | None, options: RecordOptions, program: Path | None = None) -> None:
    """Switch the recorder on; without a directory, as a flight recorder.

    `program` is where the program's own source is, if that is not the directory of __main__.
    """
    _Program.begins(program)
    _let_torch_open_ranges()
    _start(
        spool="" if directory is None else str(directory / spool.DIRECTORY),
        ring_bytes=options.ring_bytes,
        shapes=options.shapes,
        memory=options.memory,
        stacks=options.stacks,
        modules=options.modules,
        counters=list(options.counters),
    )
    if options.memory:
        define_old_blocks()
    rpc.link_calls()
    # Last, so that what this function calls is not recorded.
    if options.modules:
        _core.watch_calls(options.python, torch.nn.Module.__call__.__code__, ModuleNames())
    elif options.python:
        _core.watch_calls(True, None, None)


def _description() -> str:
    return json.dumps({**describe_process(), **_Program.said()})


def _start(**options: Any) -> None:
    common = {"process": _description(), "hidden_files": _runner_files()}
    _core.start({**common, **options}, _thread_name)


def begin_models(directory: Path, counters: Sequence[str]) -> None:
    """Switch the recorder on for models alone: each of them says what it wants."""
    _start(spool=str(directory / spool.DIRECTORY), models=True, shapes=True, stacks=True, counters=list(counters))


def end() -> dict[str, Any]:
    """Switch the recorder off. Gives the count of lost events and the disk's error, if any."""
    rpc.unlink_calls()
    _Enabled.by_us = False
    let_torch_open_ranges(torch_profiler_is_on())
    _core.define_process(_description())
    return _core.stop()
