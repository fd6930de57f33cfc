"""Tensors whose bytes leave torch in Python: pickled or saved, or handed to another library by DLPack.

What comes back from there is a constant to the tape, so a replay must find the same bytes going out.
"""

from __future__ import annotations

import types
from typing import Any

import torch


def _reduce(self, proto):  # type: ignore[no-untyped-def]
    from torchreel.tape import handed_out

    handed_out.note(self)
    return handed_out._originals[0](self, proto)


def _dlpack(self, *, stream=-1, max_version=None, dl_device=None, copy=None):  # type: ignore[no-untyped-def]
    from torchreel.tape import handed_out

    handed_out.note(self)
    return handed_out._originals[1](self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def note(tensor: torch.Tensor) -> None:
    """The methods that NumPy and lists come from are watched, and it is enough to call one."""
    if tensor.layout != torch.strided or not tensor.is_cpu or tensor.is_nested or tensor.is_quantized:
        return
    plain = tensor.detach().resolve_conj().resolve_neg()
    try:
        plain.numpy()
    except TypeError:  # a dtype that NumPy does not have
        plain.tolist()


def _copy(function: Any) -> Any:
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


_methods: list[Any] = [torch.Tensor.__reduce_ex__, torch.Tensor.__dlpack__]
_codes = [method.__code__ for method in _methods]
_originals = [_copy(method) for method in _methods]
_watched: list[Any] = [_reduce, _dlpack]


def watch(on: bool) -> None:
    """Exchange the code of the methods, as torchreel.tape.clearing does."""
    for method, code, watched in zip(_methods, _codes, _watched, strict=True):
        method.__code__ = watched.__code__ if on else code
