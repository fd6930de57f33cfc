"""Regions that torch.compile made: their kernels are no ops, so each call of one is put on the tape as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchreel import _tape
from torchreel._torch.compiler import compiled_graph_class


def watch(regions: list[Any]) -> Callable[[], None]:
    """Put calls of compiled regions on the tape, and new regions into `regions`. Returns the function that ends it."""
    graph = compiled_graph_class()
    if graph is None:
        return lambda: None
    original = graph.__call__
    numbers: dict[int, int] = {}

    def call(self: Any, inputs: Any) -> Any:
        given = [value for value in inputs if isinstance(value, torch.Tensor)]
        shape = [None if isinstance(value, torch.Tensor) else value for value in inputs]
        number = numbers.setdefault(id(self), len(regions))
        if number == len(regions):
            regions.append((original, self, shape))
        _tape.follow_thread(False)
        try:
            outputs = original(self, inputs)
        finally:
            _tape.follow_thread(True)
        _tape.opaque(number, given, [value for value in outputs if isinstance(value, torch.Tensor)])
        return outputs

    graph.__call__ = call

    def end() -> None:
        graph.__call__ = original

    return end


def run(region: Any, given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Call a region again, in this process."""
    original, graph, shape = region
    tensors = iter(given)
    inputs = [next(tensors) if value is None else value for value in shape]
    return [value for value in original(graph, inputs) if isinstance(value, torch.Tensor)]
