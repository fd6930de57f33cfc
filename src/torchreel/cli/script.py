"""Running a user's script or module in this process, as `python` would."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import runpy
import sys
import threading
import zipfile
from concurrent.futures import thread as pools
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from torchreel.errors import OptionError


@dataclass(frozen=True)
class Script:
    """A script by its path, or a module by its name, and the arguments that belong to it."""

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def prepare(self) -> None:
        """Set sys.path and sys.argv as the script expects them; an OptionError if there is no such script."""
        if self.is_module:
            sys.path[0] = str(Path.cwd())
            if importlib.util.find_spec(self.target.partition(".")[0]) is None:
                raise OptionError(f"There is no module {self.target}: check its name and the current directory.")
        else:
            path = Path(self.target)
            if not path.exists():
                raise OptionError(f"There is no script {self.target}: check the path, or give -m for a module.")
            if path.is_dir() and not (path / "__main__.py").is_file():
                raise OptionError(f"{self.target} is a directory without a __main__.py: name the script in it.")
            sys.path[0] = str(path.resolve() if path.is_dir() else path.resolve().parent)
        sys.argv = [self.target, *self.arguments]

    def directory(self) -> Path | None:
        """Where its source is: the directory of the script, or the one that holds the module or its package."""
        if not self.is_module:
            path = Path(self.target).resolve()
            return path if path.is_dir() else path.parent
        spec = importlib.util.find_spec(self.target.partition(".")[0])
        if spec is None:
            return None
        if spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations))).resolve().parent
        return Path(spec.origin).resolve().parent if spec.has_location and spec.origin else None

    def run(self) -> None:
        """Run it as __main__, and wait for those of its threads that keep a Python process alive."""
        before = set(threading.enumerate())
        if self.is_module:
            runpy.run_module(self.target, run_name="__main__", alter_sys=True)
        elif Path(self.target).is_dir() or self.target.endswith(".pyc") or zipfile.is_zipfile(self.target):
            runpy.run_path(self.target, run_name="__main__")
        else:
            _run_file(str(Path(self.target).absolute()))
        _wait_for_threads_since(before)


def _wait_for_threads_since(before: set[threading.Thread]) -> None:
    """As Python does when it ends: workers of pools, which wait for work for ever, are told that none will come."""
    while made := [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]:
        queues = [queue for thread, queue in pools._threads_queues.items() if thread in made]
        was_ending, pools._shutdown = pools._shutdown, True
        try:
            for queue in queues:
                queue.put(None)
            for thread in made:
                thread.join()
        finally:
            pools._shutdown = was_ending


def _run_file(path: str) -> None:
    """Run a file as a __main__ that stays: runpy would put another in its place while threads still need it."""
    module = ModuleType("__main__")
    vars(module).update(
        __file__=path, __cached__=None, __builtins__=builtins, __loader__=SourceFileLoader("__main__", path)
    )
    sys.modules["__main__"] = module
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, vars(module))


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the script: without our frames and runpy's."""
    ours = (str(Path(__file__).parent) + os.sep, runpy.__file__, "<frozen runpy>", "<frozen importlib")
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    return trace
