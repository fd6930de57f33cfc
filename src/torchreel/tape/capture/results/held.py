"""Tensors that a function made and that live on after it, though a replay would leave none in their place.

Somebody holds them: a queue, a set, a class, an object with slots. Where the holder is a module that was called, the
replay does the same to it; else there is no replay in place of a call.
"""

from __future__ import annotations

import functools
import gc
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from torchreel._torch.modules import buffers_of
from torchreel.tape.capture.results.effects import Effect, effects_of

_PASSING = (types.FrameType, torch.autograd.function.FunctionCtx)
_KINDS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_INNER = ("torchreel.", "torch._", "torch.fx")


def collections() -> tuple[int, ...]:
    """How often Python has looked through its older objects: new ones have become old since, if it has."""
    return tuple(each["collections"] for each in gc.get_stats()[1:])


class Held:
    """What is held when a call has ended.

    `known` are slots of results, effects, gradients and the like, `there` the ids of tensors that were there before.
    """

    def __init__(self, capture: Any, known: set[int], there: set[int], before: tuple[int, ...]) -> None:
        self._capture = capture
        outside = capture.tensors_from_outside()
        self._outside = known | {slot for slot, _ in outside}
        self._there = there | {id(tensor) for _, tensor in outside}
        self.effects: list[Effect] = []
        self.refusal = ""
        if not any(True for _ in self._tensors(before)):
            return
        gc.collect()  # what only waits to be freed is held by nobody
        modules = list(_spaces(capture.modules()))
        for reference in [weakref.ref(tensor) for tensor in self._tensors(())]:
            self._judge(reference, modules)

    def _tensors(self, before: tuple[int, ...]) -> Iterator[torch.Tensor]:
        generations = (0, 1) if before == collections() else (0, 1, 2)
        for generation in generations:
            for found in gc.get_objects(generation):
                if type(found) in _KINDS and found.layout is torch.strided and not found.is_nested:
                    slot = self._capture.find(found)
                    if slot >= 0 and slot not in self._outside and id(found) not in self._there and found.numel():
                        yield found

    def _judge(self, reference: weakref.ref[torch.Tensor], modules: list[tuple[Any, Any]]) -> None:
        tensor = reference()
        if tensor is None:
            return
        for owner, space in modules:
            for key, value in space.items():
                if value is tensor:
                    put = functools.partial(owner, key)
                    self.effects += effects_of(put, tensor, self._capture.find)
                    return
        if self.refusal:  # one is enough, and each search goes through all that Python holds
            return
        referrers = (each for each in gc.get_referrers(tensor) if not isinstance(each, _PASSING))
        holder = next((each for each in referrers if not _is_inner(each)), None)
        if holder is not None:
            self.refusal = (
                f"The function made a tensor of {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} and "
                f"left it in a {type(holder).__name__}, where a replay would leave none: return it, or write it into a "
                "tensor that is there before, and trace again."
            )


def _is_inner(holder: Any) -> bool:
    """Whether it is a part of something of torch's inside, such as a compiler, or of a tape's."""
    level = [holder]
    for _ in range(3):
        if any((type(each).__module__ or "").startswith(_INNER) for each in level):
            return True
        containers = [each for each in level if isinstance(each, dict | list | tuple)]
        if not containers:
            return False
        level = gc.get_referrers(*containers)
    return False


def _spaces(modules: list[torch.nn.Module]) -> Iterator[tuple[Any, dict[str, Any]]]:
    for module in modules:
        yield vars(module).__setitem__, vars(module)
        yield buffers_of(module).__setitem__, buffers_of(module)
