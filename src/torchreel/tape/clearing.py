"""Whether a function clears gradients itself: nn.Module.zero_grad is no op, and leaves no other trace.

Optimizer.zero_grad announces itself as a range of the profiler, which the capture sees.
"""

from __future__ import annotations

import types

import torch

_function = torch.nn.Module.zero_grad
_code = _function.__code__
_original = types.FunctionType(_code, _function.__globals__, _function.__name__, _function.__defaults__)

cleared = False


def _watched(self, set_to_none=True):  # type: ignore[no-untyped-def]
    from torchreel.tape import clearing

    clearing.cleared = True
    clearing._original(self, set_to_none)


def watch(on: bool) -> None:
    """Exchange the code of the method, not the method: what Python has cached of every module's class stays valid."""
    global cleared
    if on:
        cleared = False
    _function.__code__ = _watched.__code__ if on else _code
