"""The classes of ExecuTorch's runtime, changed so that calls of the objects that are watched are seen.

The runtime's objects take no attributes, so that nothing less than their class can be changed. That is done once, and
stays: what is not watched goes straight to the runtime.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from torchreel.edge.formats.executorch.runtime import clock
from torchreel.edge.formats.executorch.watch import Watch, Write

# What runs the program, and where among its arguments the name of the program's own method stands.
_RUN_BY_MODULE = {
    "forward": None,
    "__call__": None,
    "run_method": 0,
    "plan_execute": 0,
    "verify_result_with_bundled_expected_output": 1,
}
_WRITE = "write_etdump_result_to_file"

_WATCHED: dict[int, Watch] = {}
_METHOD_NAMES: dict[int, str] = {}
_CHANGED: dict[type, Write] = {}
_LOCK = threading.Lock()


def watch_module(module: Any) -> tuple[Watch, Write]:
    """The watch of an ExecuTorchModule, and how its measurements are written."""
    kind = type(module)
    with _LOCK:
        if kind not in _CHANGED:
            _CHANGED[kind] = getattr(kind, _WRITE)
            for name, index in _RUN_BY_MODULE.items():
                if hasattr(kind, name):
                    setattr(kind, name, _run_by_module(getattr(kind, name), index))
            setattr(kind, _WRITE, _write(_CHANGED[kind]))
        return _watch(module), functools.partial(_CHANGED[kind], module)


def watch_program(program: Any) -> tuple[Watch, Write]:
    """The watch of an executorch.runtime.Program: the calls of its methods, those that are loaded later too."""
    kind = type(program)
    with _LOCK:
        if kind not in _CHANGED:
            _CHANGED[kind] = getattr(kind, _WRITE)
            kind.load_method = _load_method(kind.load_method)
            setattr(kind, _WRITE, _write(_CHANGED[kind]))
        watch = _watch(program)
        for name, method in program._methods.items():
            if method is not None:
                _watch_method(method, name, watch)
        return watch, program._program.write_etdump_result_to_file


def _watch(owner: Any) -> Watch:
    watch = _WATCHED.get(id(owner))
    if watch is None:
        watch = _WATCHED[id(owner)] = Watch(clock())
        weakref.finalize(owner, _WATCHED.pop, id(owner), None)
    return watch


def _watch_method(method: Any, name: str, watch: Watch) -> None:
    kind = type(method)
    if kind not in _CHANGED:
        _CHANGED[kind] = kind.execute
        kind.execute = _run_by_method(kind.execute)
    if id(method) not in _WATCHED:
        _WATCHED[id(method)], _METHOD_NAMES[id(method)] = watch, name
        weakref.finalize(method, _WATCHED.pop, id(method), None)


def _run_by_module(original: Callable[..., Any], index: int | None) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch = _WATCHED.get(id(self))
        if watch is None:
            return original(self, *args, **kwargs)
        named = args[index] if index is not None and len(args) > index else kwargs.get("method_name", "forward")
        return watch.run(str(named), lambda: original(self, *args, **kwargs))

    return run


def _run_by_method(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def execute(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch = _WATCHED.get(id(self))
        if watch is None:
            return original(self, *args, **kwargs)
        return watch.run(_METHOD_NAMES[id(self)], lambda: original(self, *args, **kwargs))

    return execute


def _load_method(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_method(self: Any, name: str) -> Any:
        method = original(self, name)
        watch = _WATCHED.get(id(self))
        if watch is not None and method is not None:
            with _LOCK:
                _watch_method(method, name, watch)
        return method

    return load_method


def _write(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def write(self: Any, *args: Any, **kwargs: Any) -> None:
        watch = _WATCHED.get(id(self))
        if watch is None:
            return original(self, *args, **kwargs)
        path, debug_path = _paths(*args, **kwargs)
        return watch.write(path, debug_path, lambda *paths: original(self, *paths))

    return write


def _paths(
    path: str | None = None,
    debug_buffer_path: str | None = None,
    etdump_path: str | None = None,
) -> tuple[str, str | None]:
    """As the module names its arguments, and as the program does."""
    found = path if path is not None else etdump_path
    if found is None:
        raise TypeError(f"{_WRITE}() needs the path of a file.")
    return found, debug_buffer_path
