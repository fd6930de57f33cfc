"""Results that are not there yet when a function returns: generators, and functions that hold tensors."""

from __future__ import annotations

import functools
import types
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import torch

from torchreel.tape.structure import Structure


def unfinished(results: Structure) -> str:
    """Why a replay cannot return what the function returned, or nothing."""
    for _, value in results.constants():
        if isinstance(value, Iterator | AsyncIterator | Awaitable) and not isinstance(value, torch.nn.Module):
            return (
                f"The function returns a {type(value).__name__}, whose values are computed after it has ended and are "
                "not on the tape: return a list of them, and trace again."
            )
        if _holds_tensors(value):
            return (
                f"The function returns a function ({getattr(value, '__qualname__', type(value).__name__)}) that holds "
                "tensors of this call, and a replay would have others: call it within what is traced, and return what "
                "it gives."
            )
    return ""


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, functools.partial):
        return any(map(_is_or_holds, [value.func, *value.args, *value.keywords.values()]))
    if isinstance(value, types.MethodType):
        return _is_or_holds(value.__self__)
    if not isinstance(value, types.FunctionType):
        return False
    return any(_is_or_holds(cell.cell_contents) for cell in value.__closure__ or () if _is_filled(cell))


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_or_holds(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not isinstance(value, torch.nn.Parameter)
    if isinstance(value, list | tuple):
        return any(map(_is_or_holds, value))
    return _holds_tensors(value)
