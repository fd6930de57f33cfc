"""A part of a test that could crash, such as native code on damaged files, in a process of its own."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_ROOT = Path(__file__).parents[1]
Result = TypeVar("Result")


def in_child(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function of a module of tests gives; what it raises, or how its process died, fails the test.

    What it printed is shown then: print what it works on, and the last line tells what it died of.
    """
    with tempfile.TemporaryDirectory() as directory:
        call, answer = Path(directory) / "call", Path(directory) / "answer"
        call.write_bytes(pickle.dumps((function.__module__, function.__qualname__, arguments)))
        ended = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-m", "tests.in_child", str(call), str(answer)],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ,
        )
        said = ended.stdout.decode(errors="replace")[-10_000:]
        assert ended.returncode == 0, f"{function.__qualname__} {how_it_ended(ended.returncode)}:\n{said}"
        result: Result = pickle.loads(answer.read_bytes())
        return result


def how_it_ended(code: int) -> str:
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _main(call: Path, answer: Path) -> None:
    import importlib

    module, name, arguments = pickle.loads(call.read_bytes())
    function = getattr(importlib.import_module(module), name)
    answer.write_bytes(pickle.dumps(function(*arguments)))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))
