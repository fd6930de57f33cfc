"""A cycle: one recording of a profile, into a reel in a temporary directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path

import torch.autograd.profiler as torch_profiler

from torchreel import _core
from torchreel.errors import TorchreelError
from torchreel.record import Recorder, RecordOptions
from torchreel.reel import Reel


class Cycle:
    """Records from the moment it is made until stop(), or until nothing holds it any more.

    The reel's directory is removed when nothing holds the Reel that stop() gave.
    """

    def __init__(self, options: RecordOptions, first_step: int) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="torchreel-profile-"))
        self._recorder = Recorder(self._directory / "profile.reel", options, first_step=first_step)
        self._paused = False
        self._was_enabled: bool = torch_profiler._is_profiler_enabled
        self._finalizer = weakref.finalize(
            self, _abandon, self._recorder, self._directory, self._was_enabled, os.getpid()
        )
        # PyTorch's own code asks this before it names its ranges: torch.compile's, above all.
        torch_profiler._set_is_profiler_enabled(True)
        try:
            self._recorder.start()
        except BaseException:
            self._finalizer.detach()
            torch_profiler._set_is_profiler_enabled(self._was_enabled)
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    def step(self) -> None:
        """The next step of the program begins."""
        self._recorder.step()

    def collect(self, enabled: bool) -> None:
        """Leave out what happens from now on, or no longer."""
        if enabled is self._paused:
            self._paused = not enabled
            _core.resume() if enabled else _core.pause()

    def stop(self) -> Reel:
        """End the recording."""
        self.collect(False)  # what it takes to end it is not the program's
        torch_profiler._set_is_profiler_enabled(self._was_enabled)
        try:
            reel = self._recorder.stop()
        finally:
            self._finalizer.detach()
        assert reel is not None, "only a flight recorder has no reel"
        weakref.finalize(reel, _remove, self._directory, os.getpid())
        return reel


def _abandon(recorder: Recorder, directory: Path, was_enabled: bool, pid: int) -> None:
    """A profile was dropped, or the program ended, while it recorded: nothing may stay on."""
    if os.getpid() == pid:
        torch_profiler._set_is_profiler_enabled(was_enabled)
        with contextlib.suppress(TorchreelError, OSError):
            recorder.stop()
        _remove(directory, pid)


def _remove(directory: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child has copies of its parent's finalizers
        shutil.rmtree(directory, ignore_errors=True)
