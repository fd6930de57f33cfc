"""Child processes: each records its own part of the reel, under its own name.

A forked child first lets go of its parent's recording, in the native core, before any of its code
runs; then it begins its own. A child that is started anew finds the recording in its environment
and begins when it imports torch. The parent turns what its children leave into Parquet at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import multiprocessing.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.record.options import RecordOptions

VARIABLE = "TORCHREEL_CHILD"
_START_UP = Path(__file__).parent / "start_up"


class _Inheritance:
    """What children of this process will record into; None while nothing is recorded for them."""

    def __init__(self) -> None:
        self.reel: Path | None = None
        self.options: RecordOptions | None = None
        self.hooked = False


_inheritance = _Inheritance()


def record_children(reel: Path, options: RecordOptions) -> None:
    """From now on children record into this reel."""
    _inheritance.reel, _inheritance.options = reel, options
    os.environ[VARIABLE] = json.dumps({"reel": str(reel.resolve()), "options": options.to_json()})
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(_START_UP)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_START_UP), *paths])
    if not _inheritance.hooked:
        _inheritance.hooked = True
        os.register_at_fork(after_in_child=_after_fork)
        # multiprocessing forgets what runs at a child's end when it starts one, and then calls this.
        multiprocessing.util.register_after_fork(_inheritance, lambda _: _end_with_process())


def forget_children() -> None:
    """Children that start from now on record nothing."""
    _inheritance.reel = _inheritance.options = None
    os.environ.pop(VARIABLE, None)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != str(_START_UP)]
    if paths and paths != [""]:
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        os.environ.pop("PYTHONPATH", None)


def _after_fork() -> None:
    from torchreel import _core
    from torchreel.record import recorder

    _core.abandon()
    recorder.forget_parent()
    if _inheritance.reel is not None and _inheritance.options is not None:
        # A forked process cannot use a device that its parent used, and Kineto is the parent's.
        _begin_child(_inheritance.reel, dataclasses.replace(_inheritance.options, gpu=False))


def _begin_child(reel: Path, options: RecordOptions) -> None:
    from torchreel.errors import TorchreelError
    from torchreel.record.recorder import ChildRecorder

    try:
        ChildRecorder(reel, options).start()
    except (TorchreelError, OSError) as error:  # it must run all the same
        print(f"torchreel: Process {os.getpid()} is not recorded into {reel}: {error}", file=sys.stderr)
    else:
        _end_with_process()


def _end_with_process() -> None:
    # A child of multiprocessing leaves by its finalizers, any other by atexit; the second of them finds nothing.
    multiprocessing.util.Finalize(None, _end_child, exitpriority=-1000)
    atexit.register(_end_child)


def _end_child() -> None:
    from torchreel.record.recorder import end_child

    end_child()


def begin_from_environment() -> None:
    """Begin recording in a child that was started (not forked), once it has imported torch."""
    from torchreel.errors import TorchreelError
    from torchreel.record.options import RecordOptions

    with contextlib.suppress(TorchreelError, OSError, ValueError, KeyError):
        inherited = json.loads(os.environ[VARIABLE])
        reel, options = Path(inherited["reel"]), RecordOptions.from_json(inherited["options"])
        if options.gpu:
            from torchreel.record.device_activity import here

            options = dataclasses.replace(options, gpu=here())
        if reel.is_dir():
            _begin_child(reel, options)
