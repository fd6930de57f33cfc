"""The functions whose kernels for the tracer are written by hand, in torch's TraceTypeManual.cpp, and what these do."""

from __future__ import annotations

from dataclasses import dataclass

from torchreel.tape.rules.rule import Tape


@dataclass(frozen=True)
class ByHand:
    """What a schema does not tell of a function."""

    why: str
    tape: Tape
    node: str = ""
    inputs: tuple[str, ...] = ()
    outplace_node: str = ""
    outplace_inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    guard: str = ""


def _autograd_only(about: str) -> ByHand:
    return ByHand(f"falls through to autograd, which {about}", "nothing")


def _forgets(about: str) -> ByHand:
    return ByHand(f"warns and forgets where self came from: {about}", "itself")


def _detach(about: str, tape: Tape) -> ByHand:
    node = "aten::detach"
    return ByHand(about, tape, node, ("self",), node, ("self",), ("result",))


# By the name of the C++ function, which overloads share.
BY_HAND = {
    "data": _autograd_only("gives the same memory without a history"),
    "set_data": _autograd_only("puts other memory into the tensor"),
    "is_leaf": _autograd_only("knows the answer"),
    "output_nr": _autograd_only("knows the answer"),
    "_version": _autograd_only("knows the answer"),
    "retain_grad": _autograd_only("makes a note"),
    "requires_grad_": _autograd_only("makes a note"),
    "_backward": ByHand("falls through to autograd, which runs the backward pass", "parts"),
    "_fw_primal": ByHand("falls through to autograd, which takes an alias", "parts"),
    "_make_dual": ByHand("falls through to autograd, which takes an alias and compares layouts", "parts"),
    "resize_": _forgets("the trace holds its values as a constant from there on"),
    "resize_as_": _forgets("the trace holds its values as a constant from there on"),
    "detach": _detach("recorded as it is", "itself"),
    "detach_": _detach("recorded as if it were detach", "nothing"),
    "copy_": ByHand(
        "recorded as it is; under force_outplace, if no other tensor shares the memory, as expand_as with its "
        "arguments exchanged, which loses a change of dtype",
        "itself",
        "aten::copy_",
        ("self", "src", "non_blocking"),
        "aten::expand_as",
        ("src", "self"),
        ("self",),
        "self",
    ),
}
