"""A cycle: one recording of a profile, into a reel in a temporary directory."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from torchreel import _core
from torchreel.errors import TorchreelError
from torchreel.record import Recorder, RecordOptions
from torchreel.reel import Reel


class Cycle:
    """Records from the moment it is made until stop(), or until nothing holds it any more.

    The reel's directory is removed when nothing holds the Reel that stop() gave. With `garbage`, each work of Python's
    garbage collector is a call.
    """

    def __init__(self, options: RecordOptions, first_step: int, garbage: bool = False) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="torchreel-profile-"))
        self._recorder = Recorder(self._directory / "profile.reel", options, first_step=first_step, private=True)
        self._paused = False
        self._finalizer = weakref.finalize(self, _abandon, self._recorder, self._directory, os.getpid())
        # Before the recording begins, so that programs that ask whether there is a profiler are told of it.
        _core.show_profiler(options.shapes)
        if garbage:
            gc.callbacks.append(_core.on_garbage)
        try:
            self._recorder.start()
        except BaseException:
            self._finalizer.detach()
            _leave()
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    def step(self) -> None:
        """The next step of the program begins."""
        self._recorder.step()

    def collect(self, enabled: bool) -> None:
        """Leave out what happens from now on, or no longer."""
        if enabled is self._paused:
            self._paused = not enabled
            self._recorder.resume() if enabled else self._recorder.pause()

    def stop(self) -> Reel:
        """End the recording."""
        self.collect(False)  # garbage of ending the recording is not the program's
        _leave()
        try:
            reel = self._recorder.stop()
        finally:
            self._finalizer.detach()
        assert reel is not None, "only a flight recorder has no reel"
        weakref.finalize(reel, _remove, self._directory, os.getpid())
        return reel


def _leave() -> None:
    """The program sees no profiler any more."""
    _core.hide_profiler()
    if _core.on_garbage in gc.callbacks:
        gc.callbacks.remove(_core.on_garbage)


def _abandon(recorder: Recorder, directory: Path, pid: int) -> None:
    """A profile was dropped, or the program ended, while it recorded: nothing may stay on."""
    if os.getpid() == pid:
        _leave()
        with contextlib.suppress(TorchreelError, OSError):
            recorder.stop()
        _remove(directory, pid)


def _remove(directory: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child has copies of its parent's finalizers
        shutil.rmtree(directory, ignore_errors=True)
