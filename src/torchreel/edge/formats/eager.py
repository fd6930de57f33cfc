"""An nn.Module as it is: Python calls its ops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from torchreel._torch.compiler import disable_dynamo, is_dynamo_loaded
from torchreel.edge.formats.adapter import Adapter, Calls, Undo


def adapts(module: Any) -> bool:
    return isinstance(module, torch.nn.Module)


def _not_compiled(hook: Callable[..., None]) -> Callable[..., None]:
    """torch.compile would compile hooks with their module, and they would see no call but the first."""
    return disable_dynamo(hook) if is_dynamo_loaded() else hook  # else nothing is compiled


class _Hooks:
    """Tell each call of a module, one that raises too, by hooks around all others."""

    def __init__(self, module: torch.nn.Module, calls: Calls) -> None:
        self._module = module
        self._calls = calls
        self._depths: dict[int, int] = {}
        """How many calls are under way, by thread: each thread changes its own only."""
        self._ended = False
        # A ScriptModule has these methods only to refuse them; its calls go through hooks all the same.
        register = torch.nn.Module.register_forward_pre_hook
        self._before = register(module, _not_compiled(self._enter), prepend=True)
        self._after = torch.nn.Module.register_forward_hook(module, _not_compiled(self._leave), always_call=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hooks:
        return self  # a copy of the module has these hooks, which then tell nothing of it

    def _enter(self, module: torch.nn.Module, *_: Any) -> None:
        if module is not self._module:
            return
        thread = threading.get_ident()
        self._depths[thread] = self._depths.get(thread, 0) + 1
        self._calls.enter()

    def _leave(self, module: torch.nn.Module, *_: Any) -> None:
        thread = threading.get_ident()
        if module is not self._module or thread not in self._depths:
            return
        self._calls.leave()
        self._depths[thread] -= 1
        if not self._depths[thread]:
            del self._depths[thread]
        if self._ended:
            self._forget()

    def undo(self) -> None:
        """No further call is told; those that are under way on other threads are told to their end."""
        self._before.remove()
        self._depths.pop(threading.get_ident(), None)
        self._ended = True
        self._forget()

    def _forget(self) -> None:
        if not self._depths:
            self._after.remove()


def watch_hooks(module: torch.nn.Module, calls: Calls) -> Undo:
    """Tell each call of a module. Gives what ends that."""
    return _Hooks(module, calls).undo


class Eager(Adapter):
    format = "nn.Module"
    called_from_python = True

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self.name = type(module).__name__

    @property
    def runnable(self) -> torch.nn.Module:
        return self._module

    def watch(self, calls: Calls) -> Undo:
        return watch_hooks(self._module, calls)
