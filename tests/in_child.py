"""A part of a test that could crash, such as native code on damaged files, in a process of its own."""

from __future__ import annotations

import pickle
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.alone import run_forked

Result = TypeVar("Result")


def in_child(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function of a module of tests gives; what it raises, or how its process died, fails the test.

    The process is a fork of one that has imported torch. What it printed is shown if it fails: print what it works on,
    and the last line tells what it died of.
    """
    with tempfile.TemporaryDirectory() as directory:
        call, answer = Path(directory) / "call", Path(directory) / "answer"
        call.write_bytes(pickle.dumps((function.__module__, function.__qualname__, arguments)))
        ended = run_forked(_SCRIPT, call, answer)
        said = (ended.stdout + ended.stderr)[-10_000:]
        assert ended.returncode == 0, f"{function.__qualname__} {how_it_ended(ended.returncode)}:\n{said}"
        result: Result = pickle.loads(answer.read_bytes())
        return result


def how_it_ended(code: int) -> str:
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


_SCRIPT = """
import faulthandler, importlib, pickle, sys
from pathlib import Path
faulthandler.enable()
call, answer = map(Path, sys.argv[1:])
module, name, arguments = pickle.loads(call.read_bytes())
function = getattr(importlib.import_module(module), name)
answer.write_bytes(pickle.dumps(function(*arguments)))
"""
