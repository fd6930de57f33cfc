"""The recorder: a reel is begun, the native core is switched on, and at the end all becomes Parquet."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torchreel import _core
from torchreel._version import __version__
from torchreel.errors import (
    AlreadyRecordingError,
    RecorderError,
    ReelExistsError,
    TorchreelError,
    UnavailableError,
    UnwrittenReelError,
)
from torchreel.record import children, foreign_events, process
from torchreel.record.allocators import choose_allocator
from torchreel.record.flight import DumpTriggers
from torchreel.record.flops import FlopCounter
from torchreel.record.options import RecordOptions
from torchreel.record.schedules import Schedule
from torchreel.record.source_files import SourceFiles
from torchreel.record.sources import JoinedRecording, OwnRecording, Source, missing_options
from torchreel.record.steps import CountedSteps, HookedSteps, StepCount
from torchreel.reel import Reel, joining, load, spool
from torchreel.reel.job import current_job
from torchreel.reel.meta import Meta, write_meta
from torchreel.reel.stable_path import StablePath

if TYPE_CHECKING:
    from torchreel.record.device_activity import DeviceActivity
    from torchreel.record.step_tape import StepTape

_active: Recorder | None = None
_joined: Recorder | None = None  # within one that was begun from outside
_lock = threading.Lock()


def current_recorder() -> Recorder | None:
    """The recorder that is on in this process, or None: the innermost, if one has joined another."""
    return _joined or _active


def step() -> None:
    """The next step begins, in whatever recording is on; does nothing if none is."""
    recorder = current_recorder()
    if recorder is not None:
        recorder.step()


def forget_parent() -> None:
    """In a forked child: the recorder that runs is the parent's."""
    global _active, _joined, _lock
    for recorder in (_active, _joined):
        if recorder is not None:
            recorder.leave_to_parent()
    _active = _joined = None
    _lock = threading.Lock()


def end_child() -> None:
    """At the end of a child process."""
    if isinstance(_active, ChildRecorder):
        _active.stop()


class Recorder:
    """Records this process, and its children, into a reel. There is one at a time.

    `with Recorder(path) as recorder:` or start() and stop(); with a ring, dump(). In a program that is recorded from
    outside, by `torchreel record` or by its parent process, it joins: its reel gets its part of that recording.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: RecordOptions | None = None,
        *,
        schedule: Schedule | None = None,
        first_step: int = 0,
        force: bool = False,
        private: bool = False,
        from_outside: bool = False,
        program: Path | None = None,
    ) -> None:
        """`force` replaces a reel of that name.

        A private reel is of this process alone, whatever job that belongs to, and nobody looks for sources in it. From
        outside: others may join. `program` is where the program's own source is, if not the directory of __main__.
        """
        self._named = Path(path)
        self._stable_path: StablePath | None = None  # once the recording has begun
        self.options = options or RecordOptions()
        self.schedule = schedule
        self.lost_events = 0
        self.closed_job = False
        """Of a job of several ranks: whether this one was the last, and has closed their reel."""
        self.from_outside = from_outside
        self._force = force
        self._private = private
        self._program = program
        self._first_step = first_step
        self._used = False
        self._running = False
        self._paused = False
        self._opened: joining.OpenReel | None = None
        self._directory: Path | None = None
        self._source: Source
        self._steps: StepCount
        self._optimizer_steps: CountedSteps | HookedSteps | None = None
        self._tape: StepTape | None = None
        self._devices: DeviceActivity | None = None
        self._triggers: DumpTriggers | None = None

    @property
    def path(self) -> Path:
        """The reel, as it was named; its whole path once the program has gone to another directory."""
        return self._named if self._stable_path is None else self._stable_path.path

    @property
    def running(self) -> bool:
        """Whether it was started and not yet stopped."""
        return self._running

    def start(self) -> Recorder:
        """Begin recording. Raises before anything is changed if it cannot."""
        # A pool ends workers that have only just begun. One that ends between its claim on the reel and its first event
        # would leave a part that is not complete, though nothing is lost.
        _core.hold_termination(True)
        try:
            self._start()
        finally:
            _core.hold_termination(False)
        return self

    def _start(self) -> None:
        global _active, _joined
        with _lock:
            outer = self._outer()
            if self._used:
                raise RecorderError(
                    f"This recorder has already recorded into {self.path}: make a new one for a new recording."
                )
            if outer is None:
                self.options.check_machine()
            else:
                self._leave_reel_of(outer)
                self._say_what_is_missing(outer)
            self._stable_path = StablePath(self._named)
            if self.options.ring is None:
                self._open_reel()
            self._used = True
            try:
                self._begin(outer)
            except BaseException:
                self._throw_away()
                raise
            if outer is None:
                _active = self
            else:
                _joined = self

    def _outer(self) -> Recorder | None:
        """The recording from outside that this one joins, if one is on."""
        if not _core.recording():
            return None
        if _active is not None and _active.from_outside and _joined is None:
            return _active
        inner = current_recorder()
        where = f"into {inner.path}" if inner is not None else "in this process"
        raise AlreadyRecordingError(
            f"A recording {where} is already running, and there can be one at a time: "
            "stop it before you begin another. It goes on unharmed."
        )

    def _leave_reel_of(self, outer: Recorder) -> None:
        """A part of a recording has a reel of its own, also where the program gives it the name that is taken by it."""
        if self._named.resolve() != outer.path.resolve():
            return
        part = self._named.with_name(f"{self._named.stem}-part{self._named.suffix}")
        alone = self._private or current_job() is None
        self._named = next(path for path in _numbered(part) if not (alone and os.path.lexists(path)))
        print(
            f"torchreel: {outer.path} is the reel of the whole program, which is recorded already: "
            f"this part of it goes to {self._named}.",
            file=sys.stderr,
        )

    def _say_what_is_missing(self, outer: Recorder) -> None:
        missing = missing_options(self.options, outer.options)
        if missing:
            flags = " ".join(f"--{name}" for name in missing)
            print(
                f"torchreel: this program is already recorded into {outer.path}, without {', '.join(missing)}: "
                f"{self.path.name} has no {', '.join(missing)} either. Give {flags} to 'torchreel record'.",
                file=sys.stderr,
            )
        if self.options.gpu and outer.options.gpu:
            print(
                f"torchreel: what devices do goes to {outer.path} alone: {self.path.name} has no activity of devices.",
                file=sys.stderr,
            )

    def _open_reel(self) -> None:
        """Make the reel, or join that of this job, and take a directory in it."""
        said = process.describe_process()
        job = None if self._private else current_job()
        root = None if job is not None else joining.directory_name(said)
        self._opened = joining.begin(self.path, self._meta(root), job, replace=self._force)
        if self._opened.path != self.path and job is not None and job.speaks:
            print(
                f"torchreel: the job was restarted, so it is recorded into {self._opened.path}: {self.path} holds "
                "the ranks from before.",
                file=sys.stderr,
            )
        self._stable_path = StablePath(self._opened.path)
        self._opened = replace(self._opened, path=self._stable_path.whole)
        self._directory = joining.claim_directory(self._opened.path, said)

    def _meta(self, root: str | None) -> Meta:
        return {
            "torchreel": __version__,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "state": "recording",
            "root": root,
            "options": self.options.to_json(),
        }

    def _begin(self, outer: Recorder | None) -> None:
        options = self.options
        self._source = (
            OwnRecording(self._directory, options, self._program)
            if outer is None
            else JoinedRecording(outer._directory)
        )
        self._steps = StepCount(self._first_step, self._source.define_step, self._source.start_tick)
        if options.emit is not None:
            problem = _core.emit_ranges(options.emit)
            if problem:
                raise UnavailableError(f"Ranges cannot be emitted to {options.emit}: {problem}. Record without it.")
        if options.allocator is not None:
            choose_allocator(options.allocator)
        if options.children and options.ring is None and outer is None:
            children.record_children(self.path.absolute(), options)
        # A schedule and a tape act at each step; the parts of a recording from outside are counted here.
        acts_at_steps = self.schedule is not None or options.tape is not None or outer is not None
        if options.optimizer_steps and acts_at_steps:
            self._optimizer_steps = HookedSteps(self._optimizer_stepped)
        if options.ring is not None:
            self._triggers = DumpTriggers(self.dump, options.dump_signal)
        if options.tape is not None and self._directory is not None:
            from torchreel.record.step_tape import StepTape

            self._tape = StepTape(options.tape, self._directory)
        if options.gpu and outer is None and self._directory is not None:
            self._begin_devices(self._directory)
        atexit.register(self._stop_at_exit)
        self._running = True
        # Last, so that nothing of ours is in the recording.
        self._source.begin()
        if self._devices is not None:
            self._devices.mark_clocks()
        self._begin_steps()
        if options.optimizer_steps and not acts_at_steps:
            self._optimizer_steps = CountedSteps(self._steps)
        if self.schedule is not None and not self.schedule.records(self._steps.number):
            self.pause()
        if self._tape is not None:
            self._tape.begins(self._steps.number)

    def _begin_devices(self, directory: Path) -> None:
        from torchreel.record.device_activity import DeviceActivity

        devices = DeviceActivity(directory, with_memory=self.options.memory, with_stacks=self.options.stacks)
        devices.begin()
        self._devices = devices

    def _begin_steps(self) -> None:
        self._steps.begin()

    def stop(self) -> Reel | None:
        """End the recording and close the reel. A flight recorder that was not dumped leaves nothing."""
        self._end()
        if self._directory is None:
            return None
        self._close()
        return load(self.path)

    def discard(self) -> None:
        """End the recording and throw it away: no reel is left, or of a job's reel not this rank's part."""
        self._end()
        self._throw_away()

    def _end(self) -> None:
        global _active, _joined
        if self is _active and _joined is not None:  # its program has ended, and left it on
            _joined.stop()
        with _lock:
            if not self._running:
                raise RecorderError(f"Nothing is being recorded into {self.path}: start() comes before stop().")
            if self._devices is not None:
                self._devices.mark_clocks()
            self._source.pause()
            if self._devices is not None:
                self._devices.end()
            if self._tape is not None:
                self._tape.close()
            self._running = False
            if self is _joined:
                _joined = None
            else:
                _active = None
                children.forget_children()
            self._release()
            result = self._source.end()
        self.lost_events = result["lost"]
        if result["error"]:
            self._say_disk_refused(result["error"])
        if self._tape is not None and self._tape.problem:
            print(f"torchreel: {self._tape.problem}", file=sys.stderr)

    def _say_disk_refused(self, problem: str) -> None:
        print(
            f"torchreel: {self.path} holds the recording only up to the moment when the disk refused: {problem}. "
            "What came after it is lost; make room on the disk before you record again.",
            file=sys.stderr,
        )

    def _release(self) -> None:
        """Remove everything of the recorder from the program."""
        atexit.unregister(self._stop_at_exit)
        if self._optimizer_steps is not None:
            self._optimizer_steps.close()
        if self._triggers is not None:
            self._triggers.close()
        if self.options.emit is not None:
            _core.stop_emitting()

    def _throw_away(self) -> None:
        if self._running:  # it could not begin
            self._running = False
            self._release()
            children.forget_children()
        if self._devices is not None:
            self._devices.abandon()
        if self._directory is not None:
            for part in (self._directory, *self._added_events()):
                shutil.rmtree(part, ignore_errors=True)
        if self._opened is not None and self._opened.job is None:
            shutil.rmtree(self.path, ignore_errors=True)
        elif self._opened is not None:
            for part in joining.parts_of_rank(self._opened):  # those of children
                shutil.rmtree(part, ignore_errors=True)
            joining.end(self._opened)

    def _added_events(self) -> list[Path]:
        """The parts that add_events() made."""
        return foreign_events.parts_of(self._directory) if self._directory is not None else []

    def _stop_at_exit(self) -> None:
        """A program that ends without stop() has its reel all the same."""
        if self._running:
            self.stop()

    def _source_files(self) -> SourceFiles | None:
        return None if self._private else SourceFiles(self.options.source)

    def _additions(self, sources: SourceFiles | None) -> spool.Additions:
        """For one process: a counter knows the inputs of one by their ids. Sources are read once for several."""
        return spool.Additions(flops=FlopCounter() if self.options.flops else None, sources=sources)

    def _own_additions(self, sources: SourceFiles | None) -> spool.Additions:
        """For this process: also what its devices did."""
        additions = self._additions(sources)
        return additions if self._devices is None else replace(additions, finish=self._devices.join)

    def _close(self) -> None:
        """Everything that has ended becomes Parquet: this process, and processes of this machine that are gone."""
        assert self._directory is not None and self._opened is not None
        sources = self._source_files()
        try:
            self._write_part(self._directory, sources)
            if isinstance(self._source, OwnRecording):
                self._close_the_dead(sources)
            self.closed_job = joining.end(self._opened)
        except UnwrittenReelError as error:  # what was recorded is there, and the program goes on
            print(f"torchreel: {error}", file=sys.stderr)

    def _write_part(self, directory: Path, sources: SourceFiles | None) -> None:
        if isinstance(self._source, JoinedRecording) or spool.exists(directory):
            self._source.write(directory, self._own_additions(sources))
            if self._devices is not None:
                self._devices.say()
            if self._tape is not None:
                self._join_tape(directory)
        joining.release_directory(directory)

    def _close_the_dead(self, sources: SourceFiles | None) -> None:
        for directory in sorted(entry for entry in self.path.iterdir() if spool.exists(entry)):
            claim = joining.read_claim(directory)
            if claim is None or claim.process is None or claim.process.may_be_alive():
                continue
            with joining.closing(directory) as is_ours:
                if is_ours and spool.exists(directory):
                    self._convert_dead(directory, sources)

    def _convert_dead(self, directory: Path, sources: SourceFiles | None) -> None:
        try:
            spool.convert(directory, self._additions(sources))
            joining.release_directory(directory)
        except TorchreelError as error:  # its files stay, for someone who can read them
            print(f"torchreel: A child process of the recording is left as it is: {error}", file=sys.stderr)

    def _join_tape(self, directory: Path) -> None:
        from torchreel.record.tape_ops import write_tape_ops

        try:
            write_tape_ops(directory)
        except (TorchreelError, OSError) as error:  # the recording itself is there
            print(f"torchreel: The tape in {directory} is not joined with the ops: {error}", file=sys.stderr)

    def leave_to_parent(self) -> None:
        """This object is the copy of a recorder that runs in the parent process."""
        self._running = False
        if self._devices is not None:
            self._devices.leave_to_parent()
        self._release()

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._running:
            return
        if self.options.ring is not None and error is not None and not isinstance(error, SystemExit):
            try:
                self.dump()
            except TorchreelError as problem:  # the program's own error is the one to raise
                print(f"torchreel: {problem}", file=sys.stderr)
        self.stop()

    def step(self) -> None:
        """The next step begins. Steps of optimizers no longer count, not even those before."""
        self._require_running("step")
        if not self._steps.is_by_hand and self._optimizer_steps is not None:
            self._optimizer_steps.close()
            self._optimizer_steps = None
        self._next_step(by_hand=True)
        if self is _joined and _active is not None and not self._private:
            _active.step()

    def _optimizer_stepped(self) -> None:
        if self._running and not self._steps.is_by_hand:
            self._next_step(by_hand=False)

    def _next_step(self, *, by_hand: bool) -> None:
        counts_anew = by_hand and not self._steps.is_by_hand
        if self._tape is not None:
            self._tape.forget() if counts_anew and self._steps.number > self._first_step else self._tape.ends()
        self._steps.next(by_hand=by_hand)
        if self.schedule is not None:
            if self.schedule.records(self._steps.number):
                self.resume()
            else:
                self.pause()
        if self._tape is not None:
            self._tape.begins(self._steps.number)

    def pause(self) -> None:
        """Leave out what happens from now on."""
        self._require_running("pause")
        if not self._paused:
            self._paused = True
            if self._devices is not None:
                self._devices.mark_clocks()
            self._source.pause()
            if self._devices is not None:
                self._devices.pause()

    def resume(self) -> None:
        """Record again."""
        self._require_running("resume")
        if self._paused:
            self._paused = False
            if self._devices is not None:
                self._devices.resume()
            self._source.resume()
            if self._devices is not None:
                self._devices.mark_clocks()

    def peek(self) -> Reel:
        """What is recorded so far, while it goes on: a reel, read from what has been streamed to disk."""
        self._require_running("peek")
        if self._directory is None:
            raise RecorderError("A flight recorder has no reel to peek into yet: use dump().")
        if isinstance(self._source, OwnRecording):
            problem = _core.flush()
            if problem:
                self._say_disk_refused(problem)
            return load(self.path)
        home = Path(tempfile.mkdtemp(prefix="torchreel-peek-"))
        opened = joining.begin(home / self.path.name, self._meta(None), None)
        for part in self._added_events():
            shutil.copytree(part, opened.path / part.name)
        reel = self._dump_to(opened)
        weakref.finalize(reel, shutil.rmtree, home, ignore_errors=True)
        return reel

    def add_events(self, events: Any, *, process: str | None = None, pid: int | None = None) -> int:
        """Add ready-made events of another process or runtime: a table, or rows, of name, start_ns, end_ns (nanoseconds
        since the epoch), thread and category. They are ranges of a process of their own; returns how many."""
        self._require_running("add_events")
        return foreign_events.add_events(self._directory, events, process, pid)

    def dump(self, path: str | os.PathLike[str] | None = None) -> Reel:
        """Make a reel of what a flight recorder holds now, and go on. A second dump gets a number."""
        self._require_running("dump")
        if self.options.ring is None:
            raise RecorderError("dump() is for a flight recorder, made with ring=...: use peek() or stop().")
        job = None if self._private else current_job()
        for target in [Path(path)] if path is not None else _numbered(self.path):
            with contextlib.suppress(ReelExistsError) if path is None else contextlib.nullcontext():
                return self._dump_to(joining.begin(target, self._meta(None), job))
        raise AssertionError("there is always another number")

    def _dump_to(self, opened: joining.OpenReel) -> Reel:
        directory = joining.claim_directory(opened.path, process.describe_process())
        if opened.job is None:
            write_meta(opened.path, self._meta(directory.name))
        try:
            self._source.write(directory, self._additions(self._source_files()))
        except RuntimeError as error:
            raise RecorderError(
                f"The flight recorder cannot be dumped to {opened.path}: {error}. What could be written is there, and "
                "it goes on: make room on the disk, and dump it again."
            ) from None
        except UnwrittenReelError as error:
            print(f"torchreel: {error}", file=sys.stderr)
        else:
            joining.release_directory(directory)
            self.closed_job = joining.end(opened)
        return load(opened.path)

    def _require_running(self, what: str) -> None:
        if not self._running:
            raise RecorderError(f"{what}() needs a recording that runs: call start() first.")


class ChildRecorder(Recorder):
    """Records a child process into its parent's reel. The parent closes the reel."""

    def __init__(self, reel: Path, options: RecordOptions) -> None:
        super().__init__(reel, options, from_outside=True)

    def _open_reel(self) -> None:
        self._directory = joining.claim_directory(self.path, process.describe_process())

    def stop(self) -> Reel | None:
        """End the child's part. None if the parent has thrown it away since: then nothing is left of it."""
        assert self._directory is not None
        if joining.read_claim(self._directory) is None:
            self.discard()
            return None
        return super().stop()

    def _throw_away(self) -> None:
        super()._throw_away()
        with contextlib.suppress(OSError):  # the reel itself, if only this child was left of it
            self.path.rmdir()

    def _begin_steps(self) -> None:
        """Most children have no steps: the first one is known when the second begins."""

    def _close(self) -> None:
        assert self._directory is not None
        if not spool.exists(self._directory):
            joining.release_directory(self._directory)


def _numbered(path: Path) -> Iterator[Path]:
    """The path, then name-2, name-3 ..."""
    yield path
    number = 1
    while True:
        number += 1
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
