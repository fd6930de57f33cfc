"""An nn.Module as it is: Python calls its ops."""

from __future__ import annotations

from typing import Any

import torch

from torchreel.edge.adapter import Adapter, Calls, Undo


def adapts(module: Any) -> bool:
    return isinstance(module, torch.nn.Module)


def watch_hooks(module: torch.nn.Module, calls: Calls) -> Undo:
    """Tell each call of a module, one that raises too, by hooks around all others."""
    # A ScriptModule has these methods only to refuse them; its calls go through hooks all the same.
    handles = [
        torch.nn.Module.register_forward_pre_hook(module, lambda *_: calls.enter(), prepend=True),
        torch.nn.Module.register_forward_hook(module, lambda *_: calls.leave(), always_call=True),
    ]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


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
