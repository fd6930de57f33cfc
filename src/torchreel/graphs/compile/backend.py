"""`torch.compile(model, backend="torchreel")`: Dynamo finds the function's ops and guards them, graphs run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from torchreel._torch.compiler import aot_autograd, static_input_indices, take_boxed_arguments
from torchreel._torch.dispatch import OpOverload, schema_of
from torchreel.errors import GraphError, OptionError
from torchreel.graphs.call.entry import Graphed
from torchreel.graphs.compile.compiled import Home
from torchreel.graphs.compile.parted import Parted, is_whole
from torchreel.graphs.options import GraphOptions, known_options, refuse_unknown
from torchreel.graphs.record.generated_lines import node_lines
from torchreel.graphs.resetting import reset_compiled
from torchreel.graphs.skips import logger


def torchreel(
    module: torch.fx.GraphModule, examples: Sequence[Any], *, mode: str = "", options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend. `torch.compile(..., options={"exact": False})` gives it the options of `torchreel.graphed`."""
    if mode:
        raise OptionError(f"mode is {mode!r}: the backend torchreel has none. Leave it out, or give options={{...}}.")
    chosen = _chosen(options or {})
    home = Home()  # a backward is compiled when it is first asked for, out of Dynamo's sight
    fixed_names: set[str] = set()  # of what lies in parameters and buffers

    def compile_part(part: torch.fx.GraphModule, inputs: Sequence[Any], direction: str) -> Callable[..., Any]:
        names = [node.name for node in part.graph.nodes if node.op == "placeholder"]
        if direction == "forward":
            fixed_names.update(names[index] for index in static_input_indices() if index < len(names))
            fixed_names.update(_views(part.graph, fixed_names))
        if is_whole(part):
            return _boxed(ready(part, inputs, direction))
        parted = Parted(part, direction, ready)
        if chosen.or_error:
            raise GraphError(f"or_error=True was asked for, and not all can be one graph: {' '.join(parted.remarks)}.")
        home.tell(parted.remarks)
        for remark in parted.remarks:
            logger.info("%s", remark)
        return _boxed(parted)

    def ready(part: torch.fx.GraphModule, inputs: Sequence[Any], name: str) -> Graphed:
        names = [node.name for node in part.graph.nodes if node.op == "placeholder"]
        pairs = zip(names, inputs, strict=True)
        fixed = [name in fixed_names for name, example in pairs if isinstance(example, torch.Tensor)]
        graphed = Graphed(_named(part, name), chosen, fixed, node_lines(part))
        home.add(graphed)
        return graphed

    compiler = aot_autograd(
        fw_compiler=lambda part, inputs: compile_part(part, inputs, "forward"),
        bw_compiler=lambda part, inputs: compile_part(part, inputs, "backward"),
        keep_inference_input_mutations=True,
    )
    return compiler(module, examples)  # type: ignore[no-any-return]


torchreel.reset = reset_compiled  # type: ignore[attr-defined]  # torch._dynamo.reset() calls it


def _chosen(options: Mapping[str, Any]) -> GraphOptions:
    # Sizes are among the arguments of what Dynamo gives, or in its code: padded tensors would not fit them.
    if "pad_to" in options:
        raise OptionError(
            "pad_to cannot be given to torch.compile(backend='torchreel'), which sees each size by itself: pad the "
            "inputs before the call, or use torchreel.graphed(pad_to=...)."
        )
    refuse_unknown("The backend torchreel", options, known_options("pad_to"))
    return GraphOptions(**options)


def _views(graph: torch.fx.Graph, names: set[str]) -> Iterator[str]:
    """What a forward makes that is a view of these: a backward gets it where it lies as well."""
    known = set(names)
    for node in graph.nodes:
        if not isinstance(node.target, OpOverload) or not _is_view(node.target):
            continue
        first = node.args[0] if node.args else None
        if isinstance(first, torch.fx.Node) and first.name in known:
            known.add(node.name)
            yield node.name


def _is_view(op: OpOverload) -> bool:
    returns = schema_of(op).returns
    alias = returns[0].alias_info if len(returns) == 1 else None
    return alias is not None and not alias.is_write


def _named(part: torch.fx.GraphModule, name: str) -> torch.fx.GraphModule:
    part.__qualname__ = name  # by which people see it
    return part


def _boxed(graphed: Callable[..., Any]) -> Callable[..., Any]:
    """Take the arguments as torch.compile gives them: in a list, which is emptied."""

    def call(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return graphed(*given)

    take_boxed_arguments(call)
    return call
