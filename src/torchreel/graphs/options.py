"""How a function is graphed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from torchreel.errors import OptionError

Held = Literal["branch", "copy", "error"]
Mutation = Literal["write_back", "skip"]
Inductor = Literal[False, True, "always"]
Verify = int | Literal["first"]
CaptureSizes = Sequence[int | Sequence[int]]


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
    or_error: bool = False  # where there can be no graph: an error, instead of a call that runs eagerly
    # The sizes that are recorded, where only some are: others run eagerly. See docs/graphs.md.
    capture_sizes: CaptureSizes | None = None

    def __post_init__(self) -> None:
        _check("held", self.held, get_args(Held))
        _check("mutation", self.mutation, get_args(Mutation))
        _check("inductor", self.inductor, get_args(Inductor))
        if self.verify != "first" and (type(self.verify) is not int or self.verify < 0):
            raise OptionError(f"verify is {self.verify!r}: give 'first', or a whole number, 0 or more.")
        for name in ("exact", "skip_dynamic", "trust", "or_error"):
            if type(getattr(self, name)) is not bool:
                raise OptionError(f"{name} is {getattr(self, name)!r}: give True or False.")
        for name, least in (("limit", 1), ("warm_up", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise OptionError(f"{name} is {value!r}: give a whole number, {least} or more.")
        if self.cores not in (1, 2) or type(self.cores) is not int:
            raise OptionError(f"cores is {self.cores!r}: give 1 or 2.")
        _check_padding(self.pad_to)
        _check_sizes(self.capture_sizes)
        if self.capture_sizes is not None and self.pad_to:
            raise OptionError(
                "capture_sizes and pad_to were both given: pad_to={dim: [sizes]} records these sizes alone."
            )

    def captures(self, sizes: tuple[int, ...]) -> bool:
        """Whether calls of these sizes may be recorded: `(8, 16)` for a tensor, of which 8 alone may be listed."""
        if self.capture_sizes is None:
            return True
        listed = [each if isinstance(each, int) else tuple(each) for each in self.capture_sizes]
        return sizes in listed or (bool(sizes) and sizes[0] in listed)


def known_options(*without: str) -> list[str]:
    return [each.name for each in fields(GraphOptions) if each.name not in without]


def refuse_unknown(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raises OptionError for the first of these names that is no option."""
    for name in names:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, 1, 0.5)
        hint = f"did you mean {near[0]}? There are " if near else "give some of "
        raise OptionError(f"{what} has no option {name!r}: {hint}{', '.join(known)}.")


def _check_sizes(sizes: Any) -> None:
    if sizes is None:
        return
    example = "Give sizes (capture_sizes=[8, 16]) or shapes (capture_sizes=[(8, 128), (16, 128)])."
    if not isinstance(sizes, list | tuple) or not sizes:
        raise OptionError(f"capture_sizes is {sizes!r}. {example}")
    for each in sizes:
        listed = each if isinstance(each, list | tuple) else [each]
        if not listed or any(type(size) is not int or size < 0 for size in listed):
            raise OptionError(f"capture_sizes has {each!r}. {example}")


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
