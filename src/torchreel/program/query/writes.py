"""Which storages a program writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torchreel.program.model import Op, Program, Ref, StorageOf
from torchreel.program.schema import arguments

# Collectives of torch.distributed write their first argument, and their schemas do not say so.
_WRITES_FIRST = "c10d::"
# So does this one, when it trains: the running mean and variance.
_ALSO = {"aten::native_batch_norm": (3, 4)}
_ONLY_READS = ("c10d::send", "c10d::check_for_nan")


def written_storages(program: Program) -> set[int]:
    """Those that an op has in a place which its schema marks as written."""
    return {storage for op in program.ops for storage in _written(program, op)}


def read_and_written(program: Program, ops: Iterable[Op]) -> set[int]:
    """Storages that one of the ops writes, and another reads."""
    written: set[int] = set()
    read: set[int] = set()
    for op in ops:
        writes = _written(program, op)
        written |= writes
        gives = set(_storages(program, op.results))  # a view reads nothing
        read.update(storage for storage in _storages(program, op.args) if storage not in writes | gives)
    return read & written


def _written(program: Program, op: Op) -> set[int]:
    found: set[int] = set()
    schema = program.schemas.get(op.name, "")
    if op.name.startswith(_WRITES_FIRST) and op.name not in _ONLY_READS:
        found.update(_storages(program, op.args[0]))
    for index in _ALSO.get(op.name, ()):
        found.update(_storages(program, op.args[index]))
    if "!" in schema:
        for argument, value in zip(arguments(schema), op.args, strict=False):
            if argument.written:
                found.update(_storages(program, value))
    return found


def _storages(program: Program, value: Any) -> Iterator[int]:
    return (program.slots[part.slot].storage for part in _tensors(value))


def _tensors(value: Any) -> Iterator[Ref | StorageOf]:
    if isinstance(value, Ref | StorageOf):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _tensors(part)
