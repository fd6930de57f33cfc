"""One process's part of a recording: the native recorder, switched on and off for a directory of the reel."""

from __future__ import annotations

import json
import os
import platform
import runpy
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torchreel import _core
from torchreel.record import rpc
from torchreel.record.allocators import choose_allocator
from torchreel.record.modules import ModuleNames
from torchreel.record.old_blocks import define_old_blocks
from torchreel.record.options import RecordOptions
from torchreel.reel import spool

_PACKAGE = str(Path(__file__).resolve().parents[1])


def describe_process() -> dict[str, Any]:
    """What the process says about itself, as far as it is known now."""
    rank = world_size = None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    elif os.environ.get("RANK", "").isdigit() and os.environ.get("WORLD_SIZE", "").isdigit():
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "host": socket.gethostname(),
        "rank": rank,
        "world_size": world_size,
        "command": " ".join(sys.argv) or None,
        "torch_version": torch.__version__,
        "python_version": platform.python_version(),
        "clock": "time stamp counter" if platform.machine() == "x86_64" else "steady clock",
    }


def process_directory(reel: Path) -> Path:
    """A directory for this process that no other has had; a process id may come again."""
    name = f"{socket.gethostname()}-{os.getpid()}"
    directory, number = reel / name, 1
    while directory.exists():
        number += 1
        directory = reel / f"{name}-{number}"
    return directory


def _thread_name() -> str:
    # Not current_thread(): that makes an object for threads that Python did not start.
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    return thread.name if thread is not None else ""


def _runner_files() -> list[str]:
    """Frames of these files that stand outermost are those of a runner, not of the user's program."""
    import click

    return [
        _PACKAGE,
        str(Path(click.__file__).parent),
        str(runpy.__file__),
        "<frozen runpy>",
        str(Path(sys.prefix, "bin", "torchreel")),
    ]


def begin(directory: Path | None, options: RecordOptions) -> None:
    """Switch the recorder on; without a directory, as a flight recorder."""
    if options.allocator is not None:
        choose_allocator(options.allocator)
    _start(
        spool="" if directory is None else str(directory / spool.DIRECTORY),
        ring_bytes=options.ring_bytes,
        shapes=options.shapes,
        memory=options.memory,
        stacks=options.stacks,
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


def _start(**options: Any) -> None:
    common = {"process": json.dumps(describe_process()), "hidden_files": _runner_files()}
    _core.start({**common, **options}, _thread_name)


def begin_models(directory: Path, counters: Sequence[str]) -> None:
    """Switch the recorder on for models alone: each of them says what it wants."""
    _start(spool=str(directory / spool.DIRECTORY), models=True, shapes=True, stacks=True, counters=list(counters))


def end() -> dict[str, Any]:
    """Switch the recorder off. Gives the count of lost events and the disk's error, if any."""
    rpc.unlink_calls()
    _core.define_process(json.dumps(describe_process()))
    return _core.stop()
