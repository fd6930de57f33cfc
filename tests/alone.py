"""Programs and tests in a process of their own, where nothing of other tests comes and goes.

`run_alone` and `alone` fork a process that has imported torch, in milliseconds; `run_python` starts Python anew,
for what concerns the start of a process.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_SECONDS = 600


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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


def run_forked(
    script: str, *arguments: object, directory: Path = _ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`python -c script arguments`, in a fork of a process that has imported torch and torchreel."""
    with tempfile.NamedTemporaryFile() as output, tempfile.NamedTemporaryFile() as errors:
        request = {
            "script": textwrap.dedent(script),
            "arguments": list(map(str, arguments)),
            "directory": str(directory),
            "environment": {**os.environ, **environment},
            "output": output.name,
            "errors": errors.name,
        }
        code = _ask(json.dumps(request))
        said, complained = (Path(file.name).read_text(errors="replace") for file in (output, errors))
        return subprocess.CompletedProcess(["python", "-c", script, *map(str, arguments)], code, said, complained)


def run_alone(script: str, *arguments: object, directory: Path = _ROOT, **environment: str) -> str:
    """What the script prints in a process of its own."""
    result = run_forked(script, *arguments, directory=directory, **environment)
    assert result.returncode == 0, f"exit code {result.returncode}\n{result.stderr}"
    return result.stdout


def alone(test: Callable[..., None]) -> Callable[..., None]:
    """The test, run in a new process; its parameters must be values whose text makes them anew."""

    @functools.wraps(test)
    def run(**parameters: Any) -> None:
        result = run_forked(
            "from pathlib import PosixPath\n"
            f"from {test.__module__} import {test.__name__} as test\n"
            f"test.__wrapped__(**{parameters!r})\n"
        )
        assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout}{result.stderr}"

    return run


@functools.cache
def _server() -> subprocess.Popen[bytes]:
    """It ends with this process, whose pipe it reads."""
    command = [sys.executable, "-m", "tests.fork_server"]
    return subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def _ask(request: str) -> int:
    """The exit code of the child that the server makes for a request."""
    server = _server()
    assert server.stdin is not None
    server.stdin.write(request.encode() + b"\n")
    child = _answer(server, _SECONDS)
    assert child is not None, "the server does not answer"
    code = _answer(server, _SECONDS)
    if code is None:
        os.killpg(child, signal.SIGKILL)
        code = _answer(server, _SECONDS) or -signal.SIGKILL
    return code


def _answer(server: subprocess.Popen[bytes], seconds: float) -> int | None:
    assert server.stdout is not None
    ready, _, _ = select.select([server.stdout], [], [], seconds)
    return int(server.stdout.readline()) if ready else None
