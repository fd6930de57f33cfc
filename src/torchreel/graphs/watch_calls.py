"""Which Python functions run in a `with` block, other than those of torch and of the standard library."""

from __future__ import annotations

import os
from pathlib import Path
from types import CodeType, FunctionType, TracebackType
from typing import Any, NamedTuple

import torch

from torchreel import _graphs

FOREIGN = (str(Path(torch.__file__).parent) + "/", str(Path(__file__).parents[1]) + "/", "<frozen")
LIBRARY = str(Path(os.__file__).parent) + "/"  # in which other packages may be installed, too


class Ran(NamedTuple):
    """A code that ran: its globals and, of what is alive, its functions and the objects that were their `self`."""

    code: CodeType
    globals: dict[str, Any]
    functions: list[FunctionType]
    selves: list[Any]


class Calls:
    """What ran. It keeps nothing alive, so that tensors die when they would without it."""

    def __init__(self) -> None:
        init, call = torch.nn.Module.__init__, torch.nn.Module._wrapped_call_impl
        self._native = _graphs.WatchCalls(list(FOREIGN), LIBRARY, call.__code__, init.__code__)

    def functions(self) -> list[Ran]:
        return [Ran(*one) for one in self._native.functions()]

    def modules(self) -> list[torch.nn.Module]:
        """Those that were called."""
        return list(self._native.modules())

    def born(self) -> list[Any]:
        """Modules and other objects that were made meanwhile: another call makes its own."""
        made = [one for ran in self.functions() if ran.code.co_name == "__init__" for one in ran.selves]
        return [*self._native.born(), *made]

    def __enter__(self) -> Calls:
        self._native.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._native.stop()


def functions_run() -> Calls:
    """`with functions_run() as calls:`. A profile function that is set goes on being called."""
    return Calls()


def is_foreign(file: str) -> bool:
    """Whether a file is of torch, of the standard library or ours; other packages are like the user's own code."""
    return file.startswith(FOREIGN) or (file.startswith(LIBRARY) and "-packages/" not in file)
