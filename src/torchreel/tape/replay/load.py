"""A tape from a file: it owns its state, and needs nothing of the code that it was made of."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

import torch

from torchreel import _tape
from torchreel.errors import ReplayError, first_line
from torchreel.program.file.file import read_tape
from torchreel.program.model import OPAQUE, Complex, Program, Slot
from torchreel.program.query.source_frames import source_line
from torchreel.tape.capture.captured import Parts
from torchreel.tape.replay.schema_changes import changes, sentence
from torchreel.tape.replay.stored import StoredTensors, mapped, owned, storable
from torchreel.tape.tape import Tape


def load_tape(path: str | os.PathLike[str]) -> Tape:
    """Open what tape.save() wrote. Nothing in the file is executed.

    The tape owns copies of its state. One that was saved without data can be read, but not replayed. Ops that are
    others in this torch than in the one that made the tape are told in a warning, and replay refuses them.
    """
    file = read_tape(path)
    found = changes(file.program)
    refusal = sentence(file.program, found) if found else ""
    if refusal:
        warnings.warn(refusal, stacklevel=2)
    data = {} if file.data is None else dict(file.data)  # asking for it looks at the checksums
    parts = Parts(
        file.program,
        _tensors(file.program, data),
        _kept(file.program),
        {storage: mapped(content) for storage, content in data.items()},
    )
    parts.refusal = next(iter(file.program.notes), "")  # what was not replayed where it was made is not here
    return LoadedTape(parts, refusal)


class LoadedTape(Tape):
    """A tape whose state and generators are its own."""

    def __init__(self, parts: Parts, refusal: str) -> None:
        super().__init__(parts)
        self._refusal = refusal

    def restore(self) -> None:
        """Put state, inputs and random generators back to what they were when the tape began."""
        reshaped = [_reshape(tensor, self.program.slots[index]) for index, tensor in self.tensors.items()]
        if self.start:
            super().restore()
        for generator in self.program.generators:
            if generator.is_default:
                torch.set_rng_state(owned(generator.state))
        own_generators = not all(generator.is_default for generator in self.program.generators)
        if own_generators:
            self._parts.kept = _kept(self.program)
        if own_generators or any(reshaped):
            self.__dict__.pop("_plan", None)  # it holds the old ones

    def _check_replayable(self) -> None:
        if self._refusal:
            raise ReplayError(self._refusal)
        for index, op in enumerate(self.program.ops):
            if op.name == OPAQUE:
                line = source_line(self.program, op)
                raise ReplayError(
                    f"Op {index}{f' ({line})' if line else ''} is a compiled region, which only the process that "
                    "traced it can run: trace the function without torch.compile to replay it elsewhere."
                )
        for index, slot in enumerate(self.program.slots):
            if slot.role not in ("made", "input") and index not in self.tensors and not storable(slot):
                raise ReplayError(
                    f"The tape begins with {slot.name}, and a file has no place for tensors that are sparse, quantized "
                    "or nested, so it can be read but not replayed: make such tensors within the function."
                )
        super()._check_replayable()


def _reshape(tensor: torch.Tensor, slot: Slot) -> bool:
    """Undo what a replay has done to the sizes of a tensor of the state, if it has."""
    if slot.layout != "strided" or (tuple(tensor.shape), tensor.stride()) == (slot.sizes, slot.strides):
        return False
    with torch.no_grad():
        tensor.set_(tensor.untyped_storage(), slot.offset, slot.sizes, slot.strides)
    return True


def _tensors(program: Program, data: Mapping[int, memoryview]) -> dict[int, torch.Tensor]:
    """The tensor of each slot that no op made, as far as the file has it."""
    stored = StoredTensors(program, data)
    tensors: dict[int, torch.Tensor] = {}
    for index, slot in enumerate(program.slots):
        if slot.role == "made":
            continue
        if slot.is_number and slot.number is not None:
            number = slot.number
            tensors[index] = _tape.wrapped_number(
                complex(number.real, number.imag) if isinstance(number, Complex) else number
            )
            continue
        tensor = stored.tensor(index)
        if tensor is not None:
            tensors[index] = tensor
    return tensors


def _kept(program: Program) -> _tape.Kept:
    try:
        return _tape.Kept([(generator.is_default, generator.state) for generator in program.generators])
    except RuntimeError as error:
        raise ReplayError(
            f"A random generator of the tape cannot be made here ({first_line(error)}): make the tape again."
        ) from None
