"""empty_callback.cpp, compiled once into build/."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import ModuleType

from torch.utils import cpp_extension

_HERE = Path(__file__).resolve().parent
_BUILD = _HERE.parent / "build" / "benchmarks"


@functools.cache
def empty_callback() -> ModuleType:
    _BUILD.mkdir(parents=True, exist_ok=True)
    # ninja is installed beside the interpreter, which need not be on the path.
    tools = str(Path(sys.executable).parent)
    if tools not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([tools, os.environ["PATH"]])
    extension: ModuleType = cpp_extension.load(
        "torchreel_empty_callback",
        [str(_HERE / "empty_callback.cpp")],
        extra_cflags=["-O2"],
        build_directory=str(_BUILD),
    )
    return extension
