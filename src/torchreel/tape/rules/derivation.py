"""A schema -> its rule, in the way in which PyTorch's gen_trace_type.py goes from a schema to a wrapper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchreel.tape.rules.by_hand import BY_HAND
from torchreel.tape.rules.hot_ops import hot_ops
from torchreel.tape.rules.rule import KINDS, Kind, Rule, Tape, Tracer
from torchreel.tape.rules.schemas import NAMESPACE, parsed
from torchreel.tape.rules.unboxed import boxed_because

if TYPE_CHECKING:
    from torchgen.model import BackendIndex, DispatchKey, NativeFunction

# The tracer is to see what these are made of, whichever overload is called.
UNFOLDED = {
    "convolution",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
    "_coalesced",
}
# Under force_outplace: there was no aten::zero and no aten::fill when this was decided.
RENAMED = {"zero": "zeros_like", "fill": "full_like"}
PADDING = ("dtype=None", "layout=strided", "device=cpu", "pin_memory=False", "memory_format=preserve_format")
OUT_OPTIONS = ("out.dtype", "out.layout", "out.device", "out.pin_memory")
UNTRACEABLE = ("Storage", "Type")


def derive() -> tuple[Rule, ...]:
    """The rules of all functions, in the order of native_functions.yaml."""
    schemas = parsed()
    return tuple(rule_of(function, schemas.backend_indices) for function in schemas.native_functions)


def rule_of(function: NativeFunction, backends: dict[DispatchKey, BackendIndex]) -> Rule:
    """The rule of one function."""
    name = f"{NAMESPACE}{function.func.name}"
    tracer, why = _tracer(function)
    tape, own = _tape(function, backends)
    boxed = boxed_because(function)
    fields = _node(function, tracer)
    return Rule(
        name=name,
        schema=str(function.func),
        kind=kind_of(function),
        arguments=tuple(argument.name for argument in function.func.schema_order_arguments()),
        writes=tuple(argument.name for argument in function.func.schema_order_arguments() if argument.is_write),
        options=_options(function),
        factory=_is_factory(function),
        tracer=tracer,
        why=why,
        **fields,
        tape=tape,
        own=own,
        way="wrapper" if name in hot_ops() and not boxed else "fallback",
        boxed=boxed,
        differs=tuple(_differences(function, tracer, tape)),
    )


def kind_of(function: NativeFunction) -> Kind:
    """The kind of a schema: by which of its arguments it changes."""
    name = function.func.kind().name
    return next(kind for kind in KINDS if kind == name)


def _tracer(function: NativeFunction) -> tuple[Tracer, str]:
    by_hand = BY_HAND.get(_cpp_name(function))
    if by_hand is not None:
        return "by hand", by_hand.why
    for argument in function.func.schema_order_arguments():
        if str(argument.type) in UNTRACEABLE:
            return "passes", f"a node cannot have {argument.name}, a {argument.type}, as its input"
    if not any(result.type.is_tensor_like() for result in function.func.returns):
        returns = ", ".join(str(result.type) for result in function.func.returns) or "nothing"
        return "passes", f"it returns no tensor ({returns}), so nothing in a graph could depend on it"
    if function.func.name.name.base in UNFOLDED:
        return "unfolds", "only its parts are wanted in the graph"
    return "records", ""


def _node(function: NativeFunction, tracer: Tracer) -> dict[str, Any]:
    """What the tracer's node of it looks like, in both of its modes."""
    if tracer == "by hand":
        by_hand = BY_HAND[_cpp_name(function)]
        names = ("node", "inputs", "outplace_node", "outplace_inputs", "outputs", "guard")
        return {name: getattr(by_hand, name) for name in names}
    if tracer != "records":
        return {"node": "", "inputs": (), "outplace_node": "", "outplace_inputs": (), "outputs": (), "guard": ""}
    node, outplace_node = _names(function)
    inputs, outplace_inputs = _inputs(function)
    return {
        "node": node,
        "inputs": inputs,
        "outplace_node": outplace_node,
        "outplace_inputs": outplace_inputs,
        "outputs": _outputs(function),
        "guard": _guard(function),
    }


def _names(function: NativeFunction) -> tuple[str, str]:
    """An out= function shares the name of the functional one: their overloads tell them apart."""
    name = function.func.name.name
    if kind_of(function) in ("functional", "out") or name.dunder_method:
        renamed = RENAMED.get(str(name), str(name))
        return NAMESPACE + renamed, NAMESPACE + renamed
    inplace = _cpp_name(function)
    return NAMESPACE + RENAMED.get(inplace, inplace), NAMESPACE + RENAMED.get(name.base, name.base)


def _inputs(function: NativeFunction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    arguments = tuple(argument.name for argument in function.func.schema_order_arguments())
    outplace = arguments
    if kind_of(function) == "out":
        outplace = arguments[: -len(function.func.arguments.out)]
        # The functional one of a factory has options where this one has a tensor; so does one of the family of normal,
        # and all of that family are treated alike.
        if _is_factory(function) or function.func.name.name.base == "normal":
            outplace += OUT_OPTIONS
    if _is_guarded(function) and function.func.name.name.base in RENAMED:
        outplace += PADDING
    return arguments, outplace


def _outputs(function: NativeFunction) -> tuple[str, ...]:
    from torchgen.api import cpp

    return tuple(cpp.return_names(function))


def _guard(function: NativeFunction) -> str:
    if not _is_guarded(function):
        return ""
    out = function.func.arguments.out
    return out[0].name if out else "self"


def _is_guarded(function: NativeFunction) -> bool:
    return kind_of(function) in ("inplace", "out") and not function.func.name.name.dunder_method


def _is_factory(function: NativeFunction) -> bool:
    if function.category_override == "factory":
        return True
    makes = any(result.type.is_tensor_like() for result in function.func.returns)
    return makes and not any(argument.type.is_tensor_like() for argument in function.func.arguments.flat_non_out)


def _options(function: NativeFunction) -> tuple[str, ...]:
    options = function.func.arguments.tensor_options
    return () if options is None else tuple(argument.name for argument in options.all())


def _cpp_name(function: NativeFunction) -> str:
    from torchgen.api import cpp

    name: str = cpp.name(function.func)
    return name


def _tape(function: NativeFunction, backends: dict[DispatchKey, BackendIndex]) -> tuple[Tape, tuple[str, ...]]:
    """Autograd replaces a composite function by its parts, unless the tensor's backend has a kernel for it."""
    from torchgen.model import DispatchKey

    by_hand = BY_HAND.get(_cpp_name(function))
    if by_hand is not None:
        return by_hand.tape, ()
    if not function.has_composite_implicit_autograd_kernel:
        return "itself", ()
    # A function may leave its kernels to its out= overload.
    names = {function.func.name, function.structured_delegate}
    own = tuple(
        key.name
        for key, backend in backends.items()
        if names & backend.index.keys() and key is not DispatchKey.CompositeImplicitAutograd
    )
    return ("itself" if "CPU" in own else "parts"), own


def _differences(function: NativeFunction, tracer: Tracer, tape: Tape) -> Iterator[str]:
    """What the tape does otherwise than the tracer, which stands above autograd and has no overloads."""
    name = function.func.name
    if tape == "parts" and tracer == "records":
        yield "its parts are recorded, as autograd calls them"
    elif tape == "nothing" and _cpp_name(function) == "detach_":
        yield "not recorded: no kernel runs"
    elif tape == "itself":
        if tracer in ("passes", "unfolds"):
            yield "recorded as one call"
        if any(str(argument.type) == "Storage" for argument in function.func.schema_order_arguments()):
            yield "a Storage is an argument like others"
        if _cpp_name(function) in ("resize_", "resize_as_"):
            yield "recorded, and replayed"
        if tracer == "records" and name.overload_name:
            yield "under its own name, with the overload"
        if tracer in ("records", "by hand") and kind_of(function) != "functional":
            yield "a change of an argument is always recorded as one"
        if str(name.name) in RENAMED:
            yield f"not renamed to {RENAMED[str(name.name)]}"
