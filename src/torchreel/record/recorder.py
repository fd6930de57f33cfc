"""The recorder: a reel is begun, the native core is switched on, and at the end all becomes Parquet."""

from __future__ import annotations

import atexit
import datetime
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from torchreel import _core
from torchreel._version import __version__
from torchreel.errors import (
    AlreadyRecordingError,
    RecorderError,
    ReelExistsError,
    TorchreelError,
    UnavailableError,
)
from torchreel.record import children, process
from torchreel.record.flops import FlopCounter
from torchreel.record.options import RecordOptions
from torchreel.record.schedules import Schedule
from torchreel.record.steps import OptimizerSteps
from torchreel.reel import Reel, load, spool
from torchreel.reel.meta import read_meta, write_meta

if TYPE_CHECKING:
    from torchreel.record.step_tape import StepTape

_active: Recorder | None = None
_lock = threading.Lock()


def forget_parent() -> None:
    """In a forked child: the recorder that runs is the parent's."""
    global _active
    if _active is not None:
        _active.leave_to_parent()
    _active = None


class Recorder:
    """Records this process, and its children, into a reel. There is one at a time.

    `with Recorder(path) as recorder:` or start() and stop(); with a ring, dump().
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: RecordOptions | None = None,
        *,
        schedule: Schedule | None = None,
        first_step: int = 0,
    ) -> None:
        self.path = Path(path)
        self.options = options or RecordOptions()
        self.schedule = schedule
        self.lost_events = 0
        self._directory: Path | None = None
        self._running = False
        self._paused = False
        self._step = first_step
        self._steps_by_hand = False
        self._optimizer_steps: OptimizerSteps | None = None
        self._tape: StepTape | None = None
        self._old_handler: Any = None
        self._old_excepthook: Callable[..., Any] | None = None

    def start(self) -> Recorder:
        """Begin recording. Raises before anything is changed if it cannot."""
        global _active
        with _lock:
            if _core.recording():
                where = f"into {_active.path}" if _active is not None else "in this process"
                raise AlreadyRecordingError(
                    f"A recording {where} is already running, and there can be one at a time: "
                    "stop it before you begin another. It goes on unharmed."
                )
            if self._directory is not None:
                raise RecorderError(
                    f"This recorder has already recorded into {self.path}: make a new one for a new recording."
                )
            self.options.check_machine()
            if self.options.ring is None:
                self._make_reel(self.path)
                self._directory = process.process_directory(self.path)
                self._write_meta(self.path, self._directory.name, "recording")
            self._begin()
            _active = self
        return self

    def _make_reel(self, path: Path) -> None:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise ReelExistsError(
                f"{path} already exists and is not overwritten: give another name, or remove it first."
            ) from None
        except OSError as error:
            raise RecorderError(f"A reel cannot be made at {path}: {error.strerror}.") from None

    def _write_meta(self, path: Path, root: str, state: str) -> None:
        write_meta(
            path,
            {
                "torchreel": __version__,
                "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "state": state,
                "root": root,
                "options": self.options.to_json(),
            },
        )

    def _begin(self) -> None:
        options = self.options
        if options.emit is not None:
            problem = _core.emit_ranges(options.emit)
            if problem:
                self._remove_if_empty()
                raise UnavailableError(f"Ranges cannot be emitted to {options.emit}: {problem}. Record without it.")
        if options.children and options.ring is None:
            children.record_children(self.path, options)
        if options.optimizer_steps:
            self._optimizer_steps = OptimizerSteps(self._optimizer_stepped)
        if options.ring is not None:
            self._catch_signal_and_exception()
        if options.tape is not None and self._directory is not None:
            from torchreel.record.step_tape import StepTape

            self._tape = StepTape(options.tape, self._directory)
        atexit.register(self._stop_at_exit)
        self._running = True
        # Last, so that nothing of ours is in the recording.
        process.begin(self._directory, options)
        _core.define_step(self._step)
        if self.schedule is not None and not self.schedule.records(self._step):
            self._pause()
        if self._tape is not None:
            self._tape.begins(self._step)

    def _remove_if_empty(self) -> None:
        if self.options.ring is None:
            shutil.rmtree(self.path)

    def stop(self) -> Reel | None:
        """End the recording and close the reel. A flight recorder that was not dumped leaves nothing."""
        global _active
        with _lock:
            if not self._running:
                raise RecorderError(f"Nothing is being recorded into {self.path}: start() comes before stop().")
            _core.pause()
            if self._tape is not None:
                self._tape.close()
            self._running = False
            _active = None
            atexit.unregister(self._stop_at_exit)
            if self._optimizer_steps is not None:
                self._optimizer_steps.close()
            children.forget_children()
            self._release_signal_and_exception()
            _core.stop_emitting()
            result = process.end()
        self.lost_events = result["lost"]
        if result["error"]:
            print(
                f"torchreel: {self.path} holds the recording only up to the moment when the disk refused: "
                f"{result['error']}.",
                file=sys.stderr,
            )
        if self._tape is not None and self._tape.problem:
            print(f"torchreel: {self._tape.problem}", file=sys.stderr)
        if self._directory is None:
            return None
        self._close_reel(self.path)
        return load(self.path)

    def _stop_at_exit(self) -> None:
        """A program that ends without stop() has its reel all the same."""
        if self._running:
            self.stop()

    def _close_reel(self, path: Path) -> None:
        """Everything that has ended becomes Parquet: this process, and children that are gone."""
        counter = FlopCounter() if self.options.flops else None
        for directory in sorted(entry for entry in path.iterdir() if entry.is_dir()):
            if spool.exists(directory) and (directory == self._directory or not _is_alive(directory.name)):
                spool.convert(directory, counter)
        if self._tape is not None and self._directory is not None:
            self._join_tape(self._directory)
        meta = read_meta(path)
        write_meta(path, {**meta, "state": "closed"})

    def _join_tape(self, directory: Path) -> None:
        from torchreel.record.tape_ops import write_tape_ops

        try:
            write_tape_ops(directory)
        except (TorchreelError, OSError) as error:  # the recording itself is there
            print(f"torchreel: The tape in {directory} is not joined with the ops: {error}", file=sys.stderr)

    def leave_to_parent(self) -> None:
        """This object is the copy of a recorder that runs in the parent process."""
        self._running = False

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._running:
            return
        if self.options.ring is not None and error is not None and not isinstance(error, SystemExit):
            self.dump()
        self.stop()

    def step(self) -> None:
        """The next step begins. Steps of optimizers no longer count."""
        self._require_running("step")
        if not self._steps_by_hand:
            self._steps_by_hand = True
            if self._optimizer_steps is not None:
                self._optimizer_steps.close()
        self._next_step()

    def _optimizer_stepped(self) -> None:
        if self._running and not self._steps_by_hand:
            self._next_step()

    def _next_step(self) -> None:
        if self._tape is not None:
            self._tape.ends()
        self._step += 1
        _core.define_step(self._step)
        if self.schedule is not None:
            if self.schedule.records(self._step):
                self._resume()
            else:
                self._pause()
        if self._tape is not None:
            self._tape.begins(self._step)

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            _core.pause()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            _core.resume()

    def peek(self) -> Reel:
        """What is recorded so far, while it goes on: a reel, read from what has been streamed to disk."""
        self._require_running("peek")
        if self._directory is None:
            raise RecorderError("A flight recorder has no reel to peek into yet: use dump().")
        _core.flush()
        return load(self.path)

    def dump(self, path: str | os.PathLike[str] | None = None) -> Reel:
        """Make a reel of what a flight recorder holds now, and go on. A second dump gets a number."""
        self._require_running("dump")
        if self.options.ring is None:
            raise RecorderError("dump() is for a flight recorder, made with ring=...: use peek() or stop().")
        target = Path(path) if path is not None else _unused(self.path)
        self._make_reel(target)
        directory = process.process_directory(target)
        self._write_meta(target, directory.name, "recording")
        try:
            _core.dump(str(directory / spool.DIRECTORY))
        except RuntimeError as error:
            raise RecorderError(f"The flight recorder cannot be dumped to {target}: {error}.") from None
        spool.convert(directory, FlopCounter() if self.options.flops else None)
        self._write_meta(target, directory.name, "closed")
        return load(target)

    def _require_running(self, what: str) -> None:
        if not self._running:
            raise RecorderError(f"{what}() needs a recording that runs: call start() first.")

    def _catch_signal_and_exception(self) -> None:
        if self.options.dump_signal is not None and threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(self.options.dump_signal, self._dump_on_signal)
        self._old_excepthook = sys.excepthook
        sys.excepthook = self._dump_on_exception

    def _release_signal_and_exception(self) -> None:
        if self._old_handler is not None and self.options.dump_signal is not None:
            signal.signal(self.options.dump_signal, self._old_handler)
            self._old_handler = None
        if self._old_excepthook is not None:
            sys.excepthook = self._old_excepthook
            self._old_excepthook = None

    def _dump_on_signal(self, number: int, frame: FrameType | None) -> None:
        reel = self.dump()
        print(f"torchreel: the flight recorder was dumped to {reel.path}.", file=sys.stderr)

    def _dump_on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        hook = self._old_excepthook
        if self._running:
            reel = self.dump()
            print(f"torchreel: the flight recorder was dumped to {reel.path}.", file=sys.stderr)
        if hook is not None:
            hook(kind, error, trace)


def _unused(path: Path) -> Path:
    """The path, or the first of name-2, name-3 ... that does not exist."""
    target, number = path, 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return target


def _is_alive(name: str) -> bool:
    """Whether the process of a directory, host-pid or host-pid-number, may still write to it."""
    host = socket.gethostname()
    if not name.startswith(f"{host}-"):
        return True  # of another machine: only that one can know
    pid = name.removeprefix(f"{host}-").split("-")[0]
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
