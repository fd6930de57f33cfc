"""`torch.compile(model, backend="torchreel")`: Dynamo finds the function's ops and guards them, graphs run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchreel.graphs.entry import Graphed
from torchreel.graphs.options import GraphOptions


def torchreel(module: torch.fx.GraphModule, examples: Sequence[torch.Tensor], **options: Any) -> Callable[..., Any]:
    """The backend. `torch.compile(..., options={"exact": False})` gives it the options of `torchreel.graphed`."""
    from torch._dynamo.backends.common import aot_autograd

    chosen = GraphOptions(**options.pop("options", None) or {}, **options)

    def compile_part(part: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(Graphed(part, chosen, _fixed(inputs)))

    return aot_autograd(fw_compiler=compile_part, bw_compiler=compile_part)(module, examples)  # type: ignore[no-any-return]


def _fixed(inputs: Sequence[Any]) -> list[bool]:
    """For each tensor: whether it is a parameter or a buffer."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    static = set() if metadata is None else set(metadata.static_input_indices or ())
    return [place in static for place, each in enumerate(inputs) if isinstance(each, torch.Tensor)]


def _boxed(graphed: Graphed) -> Callable[..., Any]:
    """As torch.compile calls it: with a list, which it may empty."""

    def call(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return graphed(*given)

    call._boxed_call = True  # type: ignore[attr-defined]
    call.graphed = graphed  # type: ignore[attr-defined]
    return call
