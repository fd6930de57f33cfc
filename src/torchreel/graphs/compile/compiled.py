"""What torch.compile(backend="torchreel") returned, and the graphed parts that its calls have led to."""

from __future__ import annotations

import weakref
from typing import Any

from torchreel._torch.compiler import backend_that_compiles_now, innermost_backend, original_module
from torchreel.graphs.call.entry import Graphed

# On the object that stands for one call of torch.compile: they live as long as that.
_PARTS, _REMARKS = "_torchreel_parts", "_torchreel_remarks"


class Home:
    """The call of torch.compile for which Dynamo compiles now in this thread, if there is one."""

    def __init__(self) -> None:
        backend = backend_that_compiles_now()
        self._backend: Any = None if backend is None else innermost_backend(backend)

    def add(self, part: Graphed) -> None:
        if self._backend is not None:
            vars(self._backend).setdefault(_PARTS, []).append(weakref.ref(part))

    def tell(self, remarks: list[str]) -> None:
        """Note for people what does not run in graphs."""
        if self._backend is not None:
            vars(self._backend).setdefault(_REMARKS, []).extend(remarks)


def parts_of(compiled: Any) -> list[Graphed] | None:
    """None if torch.compile did not return it, or with another backend."""
    backend = _backend_of(compiled)
    if backend is None:
        return None
    return [part for part in (each() for each in vars(backend).get(_PARTS, [])) if part is not None]


def remarks_of(compiled: Any) -> list[str]:
    """Which of its ops do not run in graphs, and why."""
    backend = _backend_of(compiled)
    return [] if backend is None else list(vars(backend).get(_REMARKS, []))


def _backend_of(compiled: Any) -> Any:
    callback = getattr(getattr(compiled, "dynamo_ctx", None), "callback", None) or _closed_over(compiled)
    if not callable(callback):
        return None
    backend = innermost_backend(callback)
    return backend if getattr(backend, "compiler_name", "") == "torchreel" else None


def name_of(compiled: Any) -> str:
    inside = original_module(compiled)
    return str(getattr(inside, "__qualname__", type(inside).__name__))


def _closed_over(compiled: Any) -> Any:
    """The callback of a function: torch.compile keeps it in a closure."""
    names = getattr(getattr(compiled, "__code__", None), "co_freevars", ())
    cells = getattr(compiled, "__closure__", None) or ()
    found = dict(zip(names, cells, strict=False))
    try:
        return found["callback"].cell_contents if "callback" in found else None
    except ValueError:  # an empty cell
        return None
