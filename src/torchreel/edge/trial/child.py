"""The process in which files are tried, as its starter sees it. It is started once, and again after it died."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from torchreel.errors import EdgeError

_START_SECONDS = 600
_PIECE = 1 << 16


class DiedError(Exception):
    """The process died; `code` as subprocess has it, `said` the last line that it wrote."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(code, said)
        self.code = code
        self.said = said


class TooLongError(Exception):
    """The process did not answer in time, and was ended."""


class Child:
    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="torchreel-trial-"))
        self._errors = (self.home / "stderr").open("wb")
        # With -P no file in the current directory hides a package. In a session of its own the child gets no Ctrl-C:
        # the process that waits for it ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchreel.edge.trial"],
            env=_environment(self.home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,
        )
        self._pending = b""
        self._owner = os.getpid()
        self._start()

    def _start(self) -> None:
        try:
            self._receive(_START_SECONDS)
        except (DiedError, TooLongError) as error:
            said = error.said if isinstance(error, DiedError) else f"it took more than {_START_SECONDS} seconds"
            self.close()
            raise EdgeError(
                f"The process in which files of models are tried could not be started ({said}): run `{sys.executable} "
                "-c 'import torchreel.edge'` to see what is wrong, or load the file without it by check=False "
                "(--no-check)."
            ) from None
        except BaseException:
            self.close()
            raise

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request; DiedError or TooLongError, after which the process is no more."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({**request, "seconds": seconds}).encode() + b"\n")
        try:
            return self._receive(seconds)
        except BaseException:
            self.close()
            raise

    def _receive(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TooLongError
            piece = os.read(self._process.stdout.fileno(), _PIECE)
            if not piece:
                raise DiedError(self._process.wait(), self._last_words())
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        lines = (self.home / "stderr").read_text(errors="replace").strip().splitlines()
        return lines[-1].strip().rstrip(".") if lines else ""

    def close(self) -> None:
        """End the child. A fork of this process leaves it alone."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                file.close()  # type: ignore[union-attr]
        shutil.rmtree(self.home, ignore_errors=True)


def _environment(home: Path) -> dict[str, str]:
    """Files that it unpacks are removed with its folder, and no recorder runs in it.

    Memory that was not written, or given back, holds garbage there: what a damaged file makes a loader read of it is
    then not zero by chance, and the crash that could have come here comes there.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCHREEL_")}
    paths = os.pathsep.join(filter(None, sys.path))
    return {**kept, "PYTHONPATH": paths, "TMPDIR": str(home), "MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3"}
