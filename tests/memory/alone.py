"""Tests in a process of their own: once switched, the allocator of CPU tensors stays so until the process ends."""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_SECONDS = 600


def run_python(*arguments: object, timeout: float = _SECONDS, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, from the root of the repository. One that hangs is an error."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        timeout=timeout,
        env={**os.environ, **environment},
    )


@functools.cache
def _server() -> subprocess.Popen[bytes]:
    """It ends with this process, whose pipe it reads."""
    command = [sys.executable, "-m", "tests.memory.fork_server"]
    return subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def _answer(server: subprocess.Popen[bytes], seconds: float) -> int | None:
    assert server.stdout is not None
    ready, _, _ = select.select([server.stdout], [], [], seconds)
    return int(server.stdout.readline()) if ready else None


def run_forked(script: str) -> tuple[int, str]:
    """The exit code of a script in a new process, and all that it printed."""
    server = _server()
    assert server.stdin is not None
    with tempfile.NamedTemporaryFile() as output:
        server.stdin.write(json.dumps({"script": script, "output": output.name}).encode() + b"\n")
        child = _answer(server, _SECONDS)
        assert child is not None, "the server does not answer"
        code = _answer(server, _SECONDS)
        if code is None:
            os.killpg(child, signal.SIGKILL)
            code = _answer(server, _SECONDS) or -signal.SIGKILL
        return code, Path(output.name).read_text(errors="replace")


def alone(test: Callable[..., None]) -> Callable[..., None]:
    """The test, run in a new process; its parameters must be values whose text makes them anew."""

    @functools.wraps(test)
    def run(**parameters: Any) -> None:
        code, output = run_forked(
            "from pathlib import PosixPath\n"
            f"from {test.__module__} import {test.__name__} as test\n"
            f"test.__wrapped__(**{parameters!r})\n"
        )
        assert code == 0, f"exit code {code}\n{output}"

    return run
