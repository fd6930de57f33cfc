"""Tests in a process of their own: once switched, the allocator of CPU tensors stays so until the process ends."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


def run_python(*arguments: object, timeout: float = 240, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, from the root of the repository. One that hangs is an error."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        timeout=timeout,
        env={**os.environ, **environment},
    )


def alone(test: Callable[..., None]) -> Callable[..., None]:
    """The test, run in a new process; its parameters must be values whose text makes them anew."""

    @functools.wraps(test)
    def run(**parameters: Any) -> None:
        script = (
            "from pathlib import PosixPath\n"
            f"from {test.__module__} import {test.__name__} as test\n"
            f"test.__wrapped__(**{parameters!r})\n"
        )
        result = run_python("-c", script, timeout=900)
        assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"

    return run
