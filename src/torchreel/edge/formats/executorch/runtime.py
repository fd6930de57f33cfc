"""ExecuTorch's runtime, and the clock by which it measures its ops."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from typing import Any

from torchreel.errors import EdgeError, MissingPackageError

# The second is the name in older releases. What is around it imports the whole of the exporter, for ten seconds.
_NAMES = ("_C", "_portable_lib")


def runtime() -> Any:
    """ExecuTorch's runtime."""
    for name in _NAMES:
        try:
            return importlib.import_module("executorch.extension.pybindings." + name)
        except ModuleNotFoundError:
            continue
        except ImportError as error:
            raise EdgeError(
                f"ExecuTorch's runtime cannot be loaded: {error}. Install the release that was built for this PyTorch."
            ) from error
    raise MissingPackageError(
        "An ExecuTorch program needs ExecuTorch's runtime: install it with `pip install executorch`."
    )


def clock() -> Callable[[], int] | None:
    """Reads the runtime's clock, in nanoseconds; None if the runtime does not show it."""
    try:
        ticks = ctypes.CDLL(runtime().__file__).et_pal_current_ticks
    except (OSError, AttributeError):
        return None
    ticks.restype = ctypes.c_uint64
    ticks.argtypes = ()
    read: Callable[[], int] = ticks
    return read
