"""Private parts of the standard library."""

from __future__ import annotations

import copyreg
import ctypes
import functools
import random
import sys
import threading
from collections.abc import Callable
from operator import attrgetter

# A frame of this thread: 0 is the caller's own, 1 that of its caller.
get_frame = sys._getframe

# The class of what functools.cache and functools.lru_cache make.
CachedFunction = functools._lru_cache_wrapper

# The base class of c_int, c_double and their like.
SimpleCData = ctypes._SimpleCData

# The path of a library that ctypes loaded.
library_path = attrgetter("_name")

# The names of the slots of a class, which it notes in the class.
slot_names: Callable[[type], list[str]] = copyreg._slotnames  # type: ignore[attr-defined]

# What a new thread runs: run(), and all that threading does around it.
thread_bootstrap: Callable[[threading.Thread], None] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]


def set_thread_bootstrap(function: Callable[[threading.Thread], None]) -> None:
    """Have new threads run this instead."""
    threading.Thread._bootstrap_inner = function  # type: ignore[attr-defined]


def known_thread() -> threading.Thread | None:
    """The Thread of this thread. None if Python did not start it: threading.current_thread() would make one."""
    thread: threading.Thread | None = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    return thread


def global_random() -> random.Random:
    """The generator behind the functions of the module random."""
    return random._inst
