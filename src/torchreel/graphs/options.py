"""How a function is graphed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torchreel.errors import OptionError

Held = Literal["branch", "copy", "error"]
Mutation = Literal["write_back", "skip"]
Inductor = Literal[False, True, "always"]
Verify = int | Literal["first"]


@dataclass(frozen=True)
class GraphOptions:
    """The options of `torchreel.graphed`. See docs/graphs.md."""

    exact: bool = True  # bitwise what eager gives; else within tolerances, and faster
    held: Held = "branch"  # where an output that is still held would be overwritten: another graph, a copy, or an error
    mutation: Mutation = "write_back"  # of inputs: written back to the caller's tensor, or such a function runs eagerly
    limit: int = 64  # recordings of one function; calls beyond that run eagerly
    warm_up: int = 1  # calls of each kind that run eagerly before one is recorded
    pad_to: Mapping[int, int | Sequence[int]] = field(default_factory=dict)  # dimension -> multiple, or sizes to pad to
    skip_dynamic: bool = False  # the first shapes are recorded, and calls with others run eagerly
    # Have Inductor compile runs of ops in the background, and use its kernels where they are right and faster;
    # "always": where they are right.
    inductor: Inductor = False
    cores: int = 1  # that ops which do not need each other may run on, where that is found to be faster: 1 or 2
    verify: Verify = "first"  # the first replay of a recording, or every so many calls, run eagerly as well
    trust: bool = False  # the function is known to be pure: nothing of Python is guarded

    def __post_init__(self) -> None:
        _check("held", self.held, get_args(Held))
        _check("mutation", self.mutation, get_args(Mutation))
        _check("inductor", self.inductor, get_args(Inductor))
        if self.verify != "first" and (type(self.verify) is not int or self.verify < 0):
            raise OptionError(f"verify is {self.verify!r}: give 'first', or a whole number, 0 or more.")
        if type(self.trust) is not bool:
            raise OptionError(f"trust is {self.trust!r}: give True or False.")
        for name, least in (("limit", 1), ("warm_up", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise OptionError(f"{name} is {value!r}: give a whole number, {least} or more.")
        if self.cores not in (1, 2) or type(self.cores) is not int:
            raise OptionError(f"cores is {self.cores!r}: give 1 or 2.")
        _check_padding(self.pad_to)


def _check_padding(pad_to: Any) -> None:
    example = "Give, for a dimension, a multiple (pad_to={1: 64}) or the sizes to pad to (pad_to={1: [128, 256]})."
    if not isinstance(pad_to, Mapping):
        raise OptionError(f"pad_to is {pad_to!r}. {example}")
    for dimension, sizes in pad_to.items():
        listed = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
        if type(dimension) is not int or not listed or any(type(size) is not int or size < 1 for size in listed):
            raise OptionError(f"pad_to has {dimension!r}: {sizes!r}. {example}")


def _check(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OptionError(f"{name} is {value!r}: give one of {', '.join(map(repr, allowed))}.")
