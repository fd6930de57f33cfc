"""The native parts of the benchmarks, each compiled once into build/."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import ModuleType

from torch.utils import cpp_extension

_HERE = Path(__file__).resolve().parent
_BUILD = _HERE.parent / "build" / "benchmarks"


def empty_callback() -> ModuleType:
    return _extension("empty_callback")


def callgrind() -> ModuleType:
    """Needs valgrind's headers."""
    return _extension("callgrind")


@functools.cache
def _extension(name: str) -> ModuleType:
    directory = _BUILD / name
    directory.mkdir(parents=True, exist_ok=True)
    # ninja is installed beside the interpreter, which need not be on the path.
    tools = str(Path(sys.executable).parent)
    if tools not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([tools, os.environ["PATH"]])
    extension: ModuleType = cpp_extension.load(
        f"torchreel_{name}", [str(_HERE / f"{name}.cpp")], extra_cflags=["-O2"], build_directory=str(directory)
    )
    return extension
