"""The typed face of the tape's native core. Needs torch; everything else is in torchreel.tape."""

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

class Kept:
    """Generators and objects that a program points to."""

    def __init__(self, states: list[tuple[bool, bytes]]) -> None:
        """Generators for a loaded program: whether each is torch's default one, and its state."""

class Capture:
    """The ops of this process, from construction to end()."""

    @staticmethod
    def forget_last() -> None:
        """Let go of what the last capture refers to, unless it is running."""
    def __init__(self, inputs: list[torch.Tensor], hashes: bool) -> None: ...
    def end(self, results: list[torch.Tensor]) -> list[int]:
        """Stop; gives the slots of these tensors."""

    def decode(self, model: dict[str, type]) -> dict[str, Any]:
        """`ops` and `slots` as objects of the given classes, `alias_problem`, a slot or None, and `indices`.

        `indices` are those in `ops` of the capture's records, which op_count counts; -1 for a call that failed.
        """

    def close(self) -> None:
        """Let go of storages: find() finds nothing any more."""

    def externals(self) -> list[tuple[int, torch.Tensor, bool]]:
        """Slot and tensor of all that no op made, and whether nobody else holds it."""

    def tensors_from_outside(self) -> list[tuple[int, torch.Tensor]]:
        """Slot and tensor of all that no op made, but for numbers."""

    def gradients(self) -> list[tuple[int, int]]:
        """Slots of leaves, and of the gradients that ops of the tape made for them."""

    def old_gradients(self) -> list[tuple[int, int]]:
        """Slots of leaves, and of the gradients that they have and no op made, though the tape has them."""

    def rebound(self) -> list[tuple[int, int]]:
        """Slots of tensors that have other data at the end, and of these; -1 for data that no op made."""

    def generators(self) -> list[tuple[str, bool, bool, bytes]]:
        """Device, whether it is torch's default, whether nobody else holds it, and its first state."""

    def kept(self) -> Kept: ...
    def objects(self) -> list[str]: ...
    def modules(self) -> list[torch.nn.Module]: ...
    def find(self, tensor: torch.Tensor) -> int:
        """The slot of a tensor, or -1."""

    def start_storages(self) -> list[tuple[int, torch.Tensor]]: ...
    @property
    def input_slots(self) -> list[int]: ...
    @property
    def asked_inputs(self) -> list[int]:
        """Of each input, what Python asked: 1, how it lies in memory; 2, if it requires a gradient; 4, its address."""

    @property
    def ranges(self) -> list[tuple[int, str]]: ...
    @property
    def op_count(self) -> int: ...
    @property
    def gradients_set(self) -> dict[int, int]:
        """Tensors whose gradient Python set, by id, each with how many records there were when it first did."""

    @property
    def gradients_read(self) -> set[int]:
        """Tensors whose gradient Python looked at, by id."""

    @property
    def version_read(self) -> bool:
        """Whether Python asked for a tensor's _version."""

    @property
    def first_backward(self) -> int:
        """The first record of a backward; how many there are, if there is none."""

class Plan:
    """A program that is ready to run."""

    def __init__(self, slots: list[Any], ops: list[Any], kept: Kept, wanted: list[int]) -> None: ...
    def set_external(self, slot: int, tensor: torch.Tensor) -> None: ...
    def set_region(self, call: Callable[[int, list[torch.Tensor]], list[torch.Tensor]]) -> None: ...
    def bind(self, kind: str, owner: int, value: int, cleared: bool) -> None: ...
    def run(
        self, inputs: list[tuple[int, torch.Tensor]], wanted: list[int], digests: bool
    ) -> tuple[tuple[str, int, str, str] | None, list[torch.Tensor]]:
        """Run once: what went wrong (kind, op or slot, recorded, now) or None, and the values of `wanted`."""

    def digests(self) -> dict[int, list[tuple[int, float, tuple[float, ...]] | None]]: ...
    @property
    def steps(self) -> int: ...

def is_recording() -> bool: ...
def follow_thread(on: bool) -> None:
    """Whether ops of the calling thread are recorded while a capture runs."""

def opaque(region: int, given: list[torch.Tensor], gave: list[torch.Tensor]) -> None: ...
def wrapped_number(number: complex) -> torch.Tensor:
    """A Python number as the tensor that torch makes of it among the arguments of an op."""

def watch_escapes(on: bool) -> None:
    """See x.numpy() and x.tolist(), what Python does to generators, and where it asks for strides."""

def set_module_call(code: CodeType) -> None: ...
def hide_files(files: list[str]) -> None: ...
def use_wrappers(on: bool) -> None: ...
def frames() -> list[tuple[str, int, str]]: ...
def stacks() -> list[tuple[int, int]]: ...
