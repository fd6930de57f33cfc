"""The way in for backends that are written in C or C++: see include/torchreel/edge.h."""

from __future__ import annotations

import ctypes
import os
import sysconfig
from pathlib import Path

import torch  # noqa: F401 - before _core, which needs its libraries

from torchreel import _core

_PACKAGE = Path(__file__).parents[1]


def include_path() -> str:
    """The directory for a compiler's -I, in which torchreel/edge.h lies."""
    return str(_PACKAGE / "include")


def open_entry() -> None:
    """From now on, what the header looks for is found, and leads to the profilers of this process."""
    library = ctypes.CDLL(str(_PACKAGE / f"_edge_entry{sysconfig.get_config_var('EXT_SUFFIX')}"), os.RTLD_GLOBAL)
    library.torchreel_set_backend_events(*(ctypes.c_void_p(address) for address in _core.backend_functions()))
