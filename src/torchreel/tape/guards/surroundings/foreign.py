"""Objects of classes that are not the user's: what of them the code that is called can read.

Their classes are Python, too, for the most part: a method that the function can call names the attributes that it
reads, and further methods of the same object.
"""

from __future__ import annotations

import csv
import ctypes
import enum
import functools
import io
import mmap
import queue
import socket
import sqlite3
import subprocess
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import torch

from torchreel._cpython.interpreter import SimpleCData
from torchreel._torch.autograd import accumulate_hooks, backward_hooks
from torchreel._torch.modules import module_hooks, step_post_hooks, step_pre_hooks
from torchreel.tape.guards.surroundings.readable_code import names_of

# What these have in them is how they work, or what they report, and no value that a function computes with.
_SILENT = {"logging", "threading", "_thread", "warnings", "typing", "abc", "_abc", "contextlib", "concurrent",
           "asyncio", "unittest", "importlib", "inspect", "traceback", "cProfile", "dataclasses", "ast", "code",
           "torchreel", "types"}  # fmt: skip
_SILENT_PARTS = ("torch._", "torch.profiler", "torch.autograd", "torch.utils.tensorboard", "torch.utils.hooks",
                 "torch.jit", "torch.fx", "torch.distributed", "torch.cuda", "torch.overrides", "torch.backends",
                 "torch.library", "torch.types", "torch.storage", "torch.utils._",
                 "multiprocessing.context", "multiprocessing.synchronize", "numpy._", "numpy.core")  # fmt: skip
_NOT_READ = {"__init__", "__new__", "__post_init__", "__repr__", "__str__", "__del__", "__init_subclass__", "__dir__",
             "__format__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__",
             "__class_getitem__", "__sizeof__", "__subclasshook__"}  # fmt: skip
# Sources whose next answer nobody can foretell without taking it.
_SOURCES = (type(csv.reader([])), sqlite3.Connection, sqlite3.Cursor, socket.socket, subprocess.Popen,
            queue.SimpleQueue)  # fmt: skip
_LARGEST = 1 << 30  # bytes that are looked at before each replay


def is_foreign(value: Any) -> bool:
    """An object of Python's or torch's, with attributes that may change."""
    module = type(value).__module__ or ""
    if isinstance(value, type | types.FunctionType | types.ModuleType | enum.Enum) or not hasattr(value, "__dict__"):
        return False
    return module.partition(".")[0] not in _SILENT and not module.startswith(_SILENT_PARTS)


def attributes_of(value: Any, names: set[str]) -> list[str]:
    """Its attributes that code with these names can read."""
    read = _readable(type(value), names)
    enters = hasattr(type(value), "__enter__")  # a context manager: it writes prev... before it reads it
    return [key for key in vars(value) if key in read and not (enters and key.startswith("prev"))]


def _readable(cls: type, names: set[str]) -> set[str]:
    methods = _methods(cls)
    found = set(names)
    todo = [key for key in methods if key in names or (key.startswith("__") and key not in _NOT_READ)]
    seen = set(todo)
    while todo:
        more = methods[todo.pop()]
        found |= more
        new = [key for key in more if key in methods and key not in seen]
        seen.update(new)
        todo += new
    return found


@functools.lru_cache(maxsize=1000)
def _methods(cls: type) -> dict[str, frozenset[str]]:
    """What each method of a class names, with those that it overrides."""
    found: dict[str, frozenset[str]] = {}
    for each in cls.__mro__[:-1]:
        for key, value in vars(each).items():
            for code in codes_of(value):
                found[key] = found.get(key, frozenset()) | names_of(code).others
    return found


def codes_of(value: Any) -> Iterator[types.CodeType]:
    """The code of a function, of a property, or of what a decorator made of a function."""
    for function in functions_in(value):
        yield function.__code__


def functions_in(value: Any) -> Iterator[types.FunctionType]:
    for _ in range(8):
        if isinstance(value, types.FunctionType):
            yield value
        if isinstance(value, property):
            yield from (each for each in (value.fget, value.fset) if isinstance(each, types.FunctionType))
            return
        inner = (getattr(value, name, None) for name in ("__func__", "__wrapped__", "func", "wrapped"))
        value = next((each for each in inner if callable(each)), None)


def unknown(name: str, value: Any, is_untold: bool) -> str:
    """Why nobody can tell whether an object has changed, or nothing. `is_untold`: its position cannot be read."""
    if isinstance(value, _SOURCES) or is_untold:
        why = "whose next answer cannot be known before it is asked for"
    elif isinstance(value, numpy.ndarray) and value.nbytes > _LARGEST and value.flags.writeable:
        why = "which is too large to be looked at before each replay"
    else:
        return ""
    return (
        f"The function can read {name}, a {type(value).__name__}, {why}: read it outside of what is traced, and give "
        "the function what comes of it."
    )


def is_bytes(value: Any) -> bool:
    """Memory that has no attributes: what ctypes and mmap make."""
    return isinstance(value, mmap.mmap | ctypes.Array | ctypes.Structure | SimpleCData | memoryview)


def is_file(value: Any) -> bool:
    return isinstance(value, io.StringIO | io.BytesIO) or (isinstance(value, io.IOBase) and _reads(value))


def _reads(file: Any) -> bool:
    mode = str(getattr(file, "mode", ""))
    return "r" in mode and "+" not in mode


def hooks_of(owner: Any) -> Iterable[Any]:
    """The functions that torch calls when something is done with a tensor, a module or an optimizer."""
    if isinstance(owner, torch.Tensor):
        tables = [backward_hooks(owner), accumulate_hooks(owner)]
    elif isinstance(owner, torch.nn.Module):
        tables = list(module_hooks(owner))
    else:
        tables = [step_pre_hooks(owner), step_post_hooks(owner)]
    return [hook for table in tables if table for hook in table.values()]
