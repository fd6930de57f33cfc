"""Which op of the program each op of a delegate is, where the delegate does not say it.

XNNPACK names what it runs by kind and number: "Convolution (NHWC, F32) IGEMM #2". If it ran as many ops of a kind as
there are in the part of the program that it took, they are those, in their order. Else it fused or split some, and
nothing is said of any of that kind but where all of the part stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from torchreel.edge.formats.adapter import Location
from torchreel.edge.formats.executorch.etrecord import Node

Entry = TypeVar("Entry")

_PRODUCTS = ("convolution", "conv1d", "conv2d", "linear", "addmm", "mm")
# A convolution by a filter of one value is run as a fully connected layer: these two are counted together.
_KINDS = {
    "Convolution": _PRODUCTS,
    "Fully Connected": _PRODUCTS,
    "Batch Matrix Multiply": ("bmm", "matmul"),
    "Add": ("add",),
    "Subtract": ("sub",),
    "Multiply": ("mul",),
    "Divide": ("div",),
    "Mean": ("mean",),
    "Softmax": ("_softmax", "softmax"),
    "Sigmoid": ("sigmoid",),
    "TanH": ("tanh",),
    "GELU": ("gelu",),
    "Sine": ("sin",),
    "Cosine": ("cos",),
    "Square Root": ("sqrt",),
    "Reciprocal Square Root": ("rsqrt",),
    "Exp": ("exp",),
    "Hard Swish": ("hardswish",),
    "Slice": ("slice_copy",),
    "Max Pooling": ("max_pool2d", "max_pool2d_with_indices"),
    "Average Pooling": ("avg_pool2d",),
}


@dataclass(frozen=True)
class DelegateCall:
    """One call of a delegate: the names of its kernels, and the ops that they replaced."""

    names: tuple[str, ...]
    nodes: tuple[Node, ...]


Linked = list[Node | None]


def link(calls: Sequence[DelegateCall]) -> list[Linked]:
    """The node of each event of each call of a run.

    Where export took a module apart, all its ops have one debug handle, and the calls that share them cannot be told
    apart one by one: then the ops of a kind are those of the whole run, in their order.
    """
    linked = [_link(call.names, call.nodes) for call in calls]
    taken = {node.number for call in linked for node in call if node is not None}
    rest = {node.number: node for call in calls for node in call.nodes if node.number not in taken}
    left = [rest[number] for number in sorted(rest)]
    where = [(at, index) for at, call in enumerate(linked) for index, node in enumerate(call) if node is None]
    for (at, index), node in zip(where, _link([calls[at].names[index] for at, index in where], left), strict=True):
        if node is not None and node in calls[at].nodes:
            linked[at][index] = node
    return linked


def _link(names: Sequence[str], nodes: Sequence[Node]) -> Linked:
    ops = [_KINDS.get(kind_of(name), ()) for name in names]
    linked: Linked = [None] * len(names)
    for kind in dict.fromkeys(ops):
        own = [index for index, other in enumerate(ops) if other == kind]
        same = [node for node in nodes if node.op.partition("::")[2] in kind]
        if len(own) == len(same):
            for index, node in zip(own, same, strict=True):
                linked[index] = node
    return linked


def kind_of(name: str) -> str:
    """Convolution (NHWC, F32) IGEMM #2 is a Convolution."""
    return name.partition(" (")[0].partition(" #")[0]


def location_of_all(nodes: Sequence[Node]) -> Location | None:
    """Where all of them stand: the modules and the outer frames that they have in common."""
    locations = [node.location for node in nodes if node.location is not None]
    if not locations:
        return None
    modules = _common([location.modules for location in locations])
    frames = _common([location.frames[::-1] for location in locations])[::-1]
    return Location(modules, frames) if modules or frames else None


def _common(lists: Sequence[tuple[Entry, ...]]) -> tuple[Entry, ...]:
    """What they begin with alike."""
    first = lists[0]
    size = 0
    while all(len(one) > size and one[size] == first[size] for one in lists):
        size += 1
    return first[:size]
