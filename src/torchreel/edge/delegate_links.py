"""Which op of the program each op of a delegate is, where the delegate does not say it.

XNNPACK names what it runs by kind and number: "Convolution (NHWC, F32) IGEMM #2". If it ran as many ops of a kind as
there are in the part of the program that it took, they are those, in their order. Else it fused or split some, and
nothing is said of any of that kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torchreel.edge.adapter import Place
from torchreel.edge.etrecord import Node

Entry = TypeVar("Entry")

_KINDS = {
    "Convolution": ("convolution", "conv1d", "conv2d"),
    "Deconvolution": ("convolution",),
    "Fully Connected": ("linear", "addmm", "mm"),
    "Dynamic Fully Connected": ("linear", "addmm", "mm"),
    "Batch Matrix Multiply": ("bmm", "matmul"),
    "Add": ("add",),
    "Subtract": ("sub",),
    "Multiply": ("mul",),
    "Divide": ("div",),
    "Mean": ("mean",),
    "Softmax": ("_softmax", "softmax"),
    "Sigmoid": ("sigmoid",),
    "Tanh": ("tanh",),
    "GELU": ("gelu",),
    "Sine": ("sin",),
    "Cosine": ("cos",),
    "Square Root": ("sqrt",),
    "Reciprocal Square Root": ("rsqrt",),
    "Exp": ("exp",),
    "Hard Swish": ("hardswish",),
    "Max Pooling": ("max_pool2d", "max_pool2d_with_indices"),
    "Average Pooling": ("avg_pool2d",),
    "Global Average Pooling": ("mean", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"),
}


def link(names: Sequence[str], nodes: Sequence[Node]) -> list[Node | None]:
    """The node of each of a delegate's events, by their names."""
    kinds = [kind_of(name) for name in names]
    linked: list[Node | None] = [None] * len(names)
    for kind in dict.fromkeys(kinds):
        own = [index for index, other in enumerate(kinds) if other == kind]
        same = [node for node in nodes if node.op.partition("::")[2] in _KINDS.get(kind, ())]
        if len(own) == len(same):
            for index, node in zip(own, same, strict=True):
                linked[index] = node
    return linked


def kind_of(name: str) -> str:
    """Convolution (NHWC, F32) IGEMM #2 is a Convolution."""
    return name.partition(" (")[0].partition(" #")[0]


def place_of_all(nodes: Sequence[Node]) -> Place | None:
    """Where all of them stand: the modules and the outer frames that they have in common."""
    places = [node.place for node in nodes if node.place is not None]
    if not places:
        return None
    modules = _common([place.modules for place in places])
    frames = _common([place.frames[::-1] for place in places])[::-1]
    return Place(modules, frames) if modules or frames else None


def _common(lists: Sequence[tuple[Entry, ...]]) -> tuple[Entry, ...]:
    """What they begin with alike."""
    first = lists[0]
    size = 0
    while all(len(one) > size and one[size] == first[size] for one in lists):
        size += 1
    return first[:size]
