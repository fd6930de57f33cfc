"""What a process and the one that compiles for it say: a cluster of ops, and the library that came of it."""

from __future__ import annotations

import struct
from typing import BinaryIO, TypeVar

import msgspec

from torchreel.program.model import Op, Slot

ENTRY = "torchreel_cluster"  # the function of a library: it takes the table of pointers

Message = TypeVar("Message", "Job", "Answer")


class Job(msgspec.Struct, array_like=True):
    """Ops to be one kernel. Slots are numbered as they come, so that the same cluster elsewhere is the same job."""

    ops: list[Op]
    slots: list[Slot]
    inputs: list[int]  # slots that are there before
    discarded: list[int]  # of the inputs: those that are written, and of no use afterwards
    outputs: list[int]  # slots that are needed afterwards
    threads: int
    exact: bool


class Pointer(msgspec.Struct, array_like=True):
    """What a library is given: so many bytes from the beginning of a slot, or of memory that it alone uses."""

    slot: int  # -1 for memory of its own
    scratch: int  # index in Answer.scratch; -1 for a slot
    offset: int


class Answer(msgspec.Struct, array_like=True):
    library: str  # path
    pointers: list[Pointer]
    scratch: list[int]  # bytes
    refusal: str = ""  # why there is none, as a sentence


def send(stream: BinaryIO, message: Job | Answer) -> None:
    data = msgspec.msgpack.encode(message)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO, kind: type[Message]) -> Message | None:
    """None where the other end is gone."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (count,) = struct.unpack("<q", head)
    data = stream.read(count)
    return msgspec.msgpack.decode(data, type=kind) if len(data) == count else None
