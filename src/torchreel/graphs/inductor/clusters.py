"""Clusters: runs of ops of a recording that one generated kernel can do, with what they take and what they leave.

An input of a cluster is a slot that is there before it, an output one that is needed after it; whatever else its ops
make need not be anywhere. A storage that is written through one view and read through another is followed where the
cluster itself has made it, by the ops that made the views; of others the views must lie apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchreel import _graphs
from torchreel._torch.dispatch import schema_of
from torchreel.graphs.inductor.job import Job
from torchreel.graphs.inductor.lowerable import may_be_lowered, overload_of
from torchreel.program.model import Op, Program, Ref, Slot

_LARGE = 16384  # elements: two ops on so many are worth a kernel
_FEW, _MOST = 3, 64  # ops

# Of these the schema does not say that they give views.
_VIEWS = {
    "aten::_unsafe_view": "aten::view",
    "aten::unsafe_chunk": "aten::chunk",
    "aten::unsafe_split.Tensor": "aten::split.Tensor",
    "aten::unsafe_split_with_sizes": "aten::split_with_sizes",
}


@dataclass
class Cluster:
    """Steps [begin, end) of a recording."""

    begin: int
    end: int
    ops: list[Op] = field(default_factory=list)  # and the views between them
    inputs: list[int] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)  # of the inputs
    outputs: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)  # inputs

    def job(self, program: Program, threads: int, exact: bool) -> tuple[Job, list[int]]:
        """The job of compiling the cluster, and for each slot of the job the slot of the program."""
        numbers: dict[int, int] = {}

        def renamed(value: Any) -> Any:
            if isinstance(value, list):
                return [renamed(part) for part in value]
            return Ref(numbers.setdefault(value.slot, len(numbers))) if isinstance(value, Ref) else value

        ops = [Op(op.name, renamed(op.args), renamed(op.results)) for op in self.ops]
        slots = [_bare(program.slots[slot]) for slot in numbers]
        job = Job(
            ops, slots, [numbers[slot] for slot in self.inputs], [numbers[slot] for slot in self.discarded],
            [numbers[slot] for slot in self.outputs], threads, exact,
        )  # fmt: skip
        return job, list(numbers)


def _bare(slot: Slot) -> Slot:
    return Slot(0, slot.dtype, slot.sizes, slot.strides, number=slot.number, is_number=slot.is_number)


def clusters_of(program: Program, native: _graphs.StaticProgram, exact: bool) -> list[Cluster]:
    """The clusters that are worth a kernel, in the order of the program."""
    found: list[Cluster] = []
    indices = native.step_ops
    for begin, end in itertools.pairwise((0, *native.boundaries, len(indices))):
        growing = _Growing(program, native, indices, begin)
        for step in range(begin, end):
            lowerable = may_be_lowered(program.ops[indices[step]], program.slots, exact)
            if lowerable and growing.steps < _MOST and growing.add(step):
                continue
            found += growing.closed()
            growing = _Growing(program, native, indices, step)
            if not lowerable or not growing.add(step):
                growing = _Growing(program, native, indices, step + 1)
        found += growing.closed()
    return found


class _Growing:
    """A cluster that steps are added to."""

    def __init__(self, program: Program, native: _graphs.StaticProgram, indices: list[int], begin: int) -> None:
        self._program = program
        self._indices = indices  # of steps among the program's ops
        self._slots = program.slots
        self._native = native
        self._cluster = Cluster(begin, begin)
        self._known: set[int] = set()  # slots that its ops made
        self._makers: dict[int, int] = {}  # storage -> the slot that its op gave
        self._elements = 0

    @property
    def steps(self) -> int:
        return self._cluster.end - self._cluster.begin

    def add(self, step: int) -> bool:
        """Add a step to the cluster. False if it cannot be part of it: then the cluster is unchanged."""
        indices = self._indices
        op = self._program.ops[indices[step]]
        views = self._views(range(indices[step - 1] + 1, indices[step])) if self.steps else []
        known = self._known | {ref.slot for view in views for ref in _refs(view.results)}
        new: list[int] = []
        written = {ref.slot for ref in _written(op)}
        for ref in _refs(op.args):
            slot = self._slots[ref.slot]
            if ref.slot in known or slot.is_number or ref.slot in new:
                continue
            if slot.storage in self._makers:
                return False  # a view that no op has made
            if ref.slot not in self._cluster.inputs:
                new.append(ref.slot)
        inputs = [*self._cluster.inputs, *new]
        all_written = [*self._cluster.written, *(slot for slot in inputs if slot in written)]
        if not self._lie_apart(inputs, all_written):
            return False
        for ref in _refs(op.results):
            storage = self._slots[ref.slot].storage
            if ref.slot in written:
                continue
            if storage in self._makers or any(self._slots[slot].storage == storage for slot in inputs):
                return False
        self._take(step, [*views, op], new, all_written, known)
        return True

    def _take(self, step: int, ops: list[Op], new: list[int], written: list[int], known: set[int]) -> None:
        cluster = self._cluster
        cluster.end = step + 1
        cluster.ops += ops
        cluster.inputs += new
        cluster.written = list(dict.fromkeys(written))
        self._known = known
        for ref in _refs(ops[-1].results):
            self._elements = max(self._elements, _elements(self._slots[ref.slot]))
            if ref.slot not in cluster.inputs and ref.slot not in self._known:
                self._known.add(ref.slot)
                self._makers[self._slots[ref.slot].storage] = ref.slot

    def _views(self, indices: range) -> list[Op]:
        """Ops between two steps that give views of what the cluster has made."""
        found = []
        known = set(self._known)
        for index in indices:
            op = self._program.ops[index]
            name = _VIEWS.get(op.name, op.name)
            if not _is_view(name) or not all(ref.slot in known for ref in _refs(op.args)):
                continue
            found.append(Op(name, op.args, op.results))
            known |= {ref.slot for ref in _refs(op.results)}
        return found

    def _lie_apart(self, inputs: list[int], written: list[int]) -> bool:
        """Whether what is written to an input is seen through no other."""
        if not written:
            return True
        for one in written:
            for other in inputs:
                if one == other or self._slots[one].storage != self._slots[other].storage:
                    continue
                if _may_meet(self._slots[one], self._slots[other]):
                    return False
        return all(_is_single(self._slots[slot]) for slot in written)

    def closed(self) -> list[Cluster]:
        """The cluster, if it pays and makes all tensors that later ops read."""
        cluster = self._cluster
        if self.steps < _FEW and (self.steps < 2 or self._elements < _LARGE):
            return []
        for storage, slot in self._makers.items():
            if not self._is_needed(storage):
                continue
            if not _is_whole(self._slots[slot]):
                return []
            cluster.outputs.append(slot)
        cluster.discarded = [slot for slot in cluster.written if not self._is_needed(self._slots[slot].storage)]
        kept = len(cluster.outputs) + len(cluster.written) - len(cluster.discarded)
        return [cluster] if kept else []

    def _is_needed(self, storage: int) -> bool:
        is_made, last, handed_out = self._native.life(storage)
        return not is_made or handed_out or last >= self._cluster.end


def _refs(values: list[Any]) -> Iterator[Ref]:
    for value in values:
        if isinstance(value, Ref):
            yield value
        elif isinstance(value, list):
            yield from _refs(value)


def _written(op: Op) -> Iterator[Ref]:
    overload = overload_of(op.name)
    for argument, value in zip(schema_of(overload).arguments, op.args, strict=True):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _refs([value])


def _is_view(name: str) -> bool:
    overload = overload_of(name)
    if overload is None or not schema_of(overload).returns:
        return False
    alias = schema_of(overload).returns[0].alias_info
    return alias is not None and not alias.is_write


def _elements(slot: Slot) -> int:
    count = 1
    for size in slot.sizes:
        count *= size
    return count


def _reach(slot: Slot) -> int:
    """Elements from the first to the last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(slot.sizes, slot.strides, strict=True))


def _is_single(slot: Slot) -> bool:
    """Whether no element lies where another does: each dimension steps over all that those within it reach."""
    reach = 1
    for stride, size in sorted(zip(slot.strides, slot.sizes, strict=True)):
        if size == 1:
            continue
        if stride < reach:
            return False
        reach += (size - 1) * stride
    return True


def _is_whole(slot: Slot) -> bool:
    """Whether its elements are all that its storage has."""
    return slot.offset == 0 and _is_single(slot) and _reach(slot) == _elements(slot) and slot.bytes in (0, _bytes(slot))


def _bytes(slot: Slot) -> int:
    return _elements(slot) * int(getattr(torch, slot.dtype).itemsize)


def _may_meet(one: Slot, other: Slot) -> bool:
    """Whether two views may have an element in common."""
    if one.dtype != other.dtype:
        return True
    if one.offset + _reach(one) <= other.offset or other.offset + _reach(other) <= one.offset:
        return False
    # Columns of one matrix: the same steps, and each within the room that the other leaves.
    if one.strides != other.strides or one.sizes != other.sizes or len(one.sizes) < 2:
        return True
    inner = max(_inner_reach(one), 1)
    outer = max(one.strides)
    distance = abs(one.offset - other.offset) % outer
    return distance < inner or distance + inner > outer


def _inner_reach(slot: Slot) -> int:
    """Elements from the first to the last of one row: of all dimensions but that of the longest stride."""
    pairs = sorted(zip(slot.strides, slot.sizes, strict=True))[:-1]
    return 1 + sum((size - 1) * stride for stride, size in pairs)
