"""What a function leaves in Python's own containers and variables, and a replay leaves there too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchreel.tape.capture.results.result_forms import ResultForms
from torchreel.tape.plain import is_plain
from torchreel.tape.structure import Structure


@dataclass(frozen=True)
class Effect:
    """A value that was put somewhere, as a structure around the tensors of slots."""

    put: Callable[[Any], object]
    structure: Structure
    slots: tuple[int, ...]
    is_result: bool = False  # what the function returns, itself


def effects_of(
    put: Callable[[Any], object],
    value: Any,
    slot_of: Callable[[torch.Tensor], int],
    is_known: bool = False,
    forms: ResultForms | None = None,
) -> Iterator[Effect]:
    """The effect of writing a value, if it is plain, constant, or made of tensors of the tape; else none."""
    try:
        structure = Structure(value)
    except Exception:  # an object of somebody's that cannot be copied
        return
    slots = tuple(map(slot_of, structure.tensors))
    if all(slot >= 0 for slot in slots) and (slots or is_known or is_plain(value)):
        if forms is not None:
            forms.note(structure, list(slots))
        structure.tensors = []  # the tape has its own
        yield Effect(put, structure, slots)


def slots_of(effects: Sequence[Effect]) -> list[int]:
    return [slot for effect in effects for slot in effect.slots]


def leave(effects: Sequence[Effect], tensors: list[torch.Tensor], result: Any) -> None:
    """`tensors` are the values of their slots, in their order; `result` is what the replay returns."""
    values = iter(tensors)
    for effect in effects:
        if effect.is_result:
            effect.put(result)
            continue
        structure = effect.structure
        effect.put(structure.rebuild(structure.formed([next(values) for _ in effect.slots])))
