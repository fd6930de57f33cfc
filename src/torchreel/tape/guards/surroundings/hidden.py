"""The state of things that have no attributes for it: arrays, sets, iterators, sources of random numbers."""

from __future__ import annotations

import array
import contextvars
import hashlib
import io
import itertools
import random
import types
from collections.abc import Iterator
from typing import Any

import numpy

from torchreel.tape.guards.surroundings.foreign import is_bytes, is_file
from torchreel.tape.plain import is_plain

_UNTOLD = "not told"
_LARGEST = 1 << 12  # bytes that are kept as they are; of more than these, their hash
_BUILT_IN: tuple[Any, ...] = (iter([]), iter(()), iter({}), iter(range(0)), iter(""))
_ITERATORS: tuple[type, ...] = (*map(type, _BUILT_IN), types.GeneratorType, enumerate, zip, map, filter, reversed,
                                itertools.count, itertools.cycle, itertools.repeat, itertools.chain,
                                itertools.islice)  # fmt: skip
HIDDEN = (numpy.ndarray, array.array, bytearray, set, contextvars.ContextVar, random.Random, numpy.random.Generator,
          numpy.random.RandomState, *_ITERATORS)  # fmt: skip


def is_hidden(value: Any) -> bool:
    if isinstance(value, HIDDEN) or is_file(value) or is_bytes(value):
        return True
    return isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools")


def hidden_state(value: Any) -> Any:
    """What is in a thing that has no attributes for it, as bytes or text."""
    if isinstance(value, numpy.ndarray):
        return _array_state(value)
    if isinstance(value, array.array | bytearray) or is_bytes(value):
        return _short(memoryview(value).cast("B"))
    if isinstance(value, io.IOBase):
        return _file_state(value)
    if isinstance(value, set):
        parts = tuple(value)
        return _short(repr(parts).encode()) if all(map(is_plain, parts)) else parts
    if isinstance(value, contextvars.ContextVar):
        return value.get(None)
    if isinstance(value, random.Random):
        return hash(value.getstate())
    if isinstance(value, numpy.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, numpy.random.RandomState):
        state: Any = value.get_state(legacy=False)
        return state["state"]["key"].tobytes(), state["state"]["pos"]
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return None if frame is None else (frame.f_lasti, *map(_shallow, frame.f_locals.values()))
    return _position(value)


def _array_state(value: Any) -> Any:
    """The values of an array, with its other properties that Python can read."""
    form = value.dtype.str, value.shape, value.strides
    if value.dtype.hasobject:
        return *form, tuple(value.ravel().tolist())
    if isinstance(value, numpy.memmap) and not value.flags.writeable:
        return form
    return *form, _short(memoryview(value if value.flags.c_contiguous else value.copy(order="C")).cast("B"))


def _short(content: Any) -> bytes:
    return bytes(content) if len(content) <= _LARGEST else hashlib.blake2b(content).digest()


def _file_state(file: Any) -> Any:
    """The position of a file, and its contents if it is in memory."""
    if file.closed:
        return "closed"
    if isinstance(file, io.StringIO | io.BytesIO):
        content = file.getvalue()
        return file.tell(), _short(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return file.tell()


def is_unreadable(value: Any) -> bool:
    """An iterator that does not tell how far it has come."""
    return isinstance(value, Iterator) and is_hidden(value) and hidden_state(value) is _UNTOLD


def _position(iterator: Any) -> Any:
    """How far an iterator of Python's own has come, by what it says of itself to be pickled."""
    try:
        _, given, *state = iterator.__reduce__()
    except TypeError:
        return _UNTOLD
    return tuple(map(_shallow, [*given, *state]))


def _shallow(value: Any) -> Any:
    return hidden_state(value) if isinstance(value, HIDDEN) else value if is_plain(value) else type(value).__name__
