"""Tensors whose bytes leave torch in Python: pickled or saved, or handed to another library by DLPack.

What comes back from there is a constant to the tape, so a replay must find the same bytes going out.
"""

from __future__ import annotations

from typing import Any

import torch

from torchreel.tape.capture.exchange import copy_of


def _reduce(self, proto):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import handed_out

    handed_out.note(self)
    return handed_out._originals[0](self, proto)


def _dlpack(self, *, stream=-1, max_version=None, dl_device=None, copy=None):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import handed_out

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


_methods: list[Any] = [torch.Tensor.__reduce_ex__, torch.Tensor.__dlpack__]
_originals = [copy_of(method) for method in _methods]
EXCHANGED: list[tuple[Any, Any]] = list(zip(_methods, (_reduce, _dlpack), strict=True))
