"""Private parts of Dynamo, AOTAutograd and Inductor.

They take seconds to import: functions here import them, or only ask whether somebody else has.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

# Dynamo


def is_dynamo_loaded() -> bool:
    """Whether somebody has imported Dynamo, or is about to: else nothing is compiled."""
    return "torch._dynamo" in sys.modules


def disable_dynamo(function: Callable[..., None]) -> Callable[..., None]:
    """The function, never compiled. Waits for an import of Dynamo that another thread is within."""
    disabled: Callable[..., None] = importlib.import_module("torch._dynamo").disable(function)
    return disabled


def innermost_backend(callback: Any) -> Any:
    """The backend of a call of torch.compile, under what Dynamo wraps around it."""
    from torch._dynamo.eval_frame import innermost_backend

    return innermost_backend(callback)


def backend_that_compiles_now() -> Any:
    """The backend of the call of torch.compile for which Dynamo compiles in this thread, or None."""
    from torch._dynamo.symbolic_convert import tls

    translator = getattr(tls, "current_tx", None)
    return None if translator is None else translator.output.compiler_fn


def bookkeeping_of_dynamo() -> Iterator[types.CodeType]:
    """The code of the function by which Dynamo notes which modules it has seen made, if Dynamo is imported."""
    tracking: Any = sys.modules.get("torch._dynamo.mutation_guard")
    if tracking is not None:
        yield tracking.GenerationTracker.tag.__func__.__code__


def autograd_compiler_switch() -> Any:
    """The C function that switches compiled autograd on and off; None while Dynamo is not imported."""
    compiler: Any = sys.modules.get("torch._C._dynamo.autograd_compiler")
    return None if compiler is None else compiler.set_autograd_compiler


def original_module(compiled: Any) -> Any:
    """The module inside of a compiled one; a compiled function itself."""
    return getattr(compiled, "_orig_mod", compiled)


# AOTAutograd


def aot_autograd(**settings: Any) -> Any:
    """A backend of torch.compile from compilers of forwards and backwards."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(**settings)


def static_input_indices() -> list[int]:
    """Of the arguments of the forward that is being compiled: those that Dynamo knows to be parameters and buffers."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return [] if metadata is None else list(metadata.static_input_indices or ())


def take_boxed_arguments(function: Any) -> None:
    """Tell AOTAutograd to pass the arguments as one list, which the function may empty."""
    function._boxed_call = True


# Inductor


def compiled_graph_class() -> Any:
    """The class of the regions that Inductor compiled; None while Inductor is not imported."""
    return getattr(sys.modules.get("torch._inductor.output_code"), "CompiledFxGraph", None)


def are_graph_trees_loaded() -> bool:
    """Whether somebody has imported CUDA graph trees: else there are none."""
    return "torch._inductor.cudagraph_trees" in sys.modules
