"""Which storages a program writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchreel.program.model import Program, Ref, StorageOf
from torchreel.program.schema import arguments

# Collectives of torch.distributed write their first argument, and their schemas do not say so.
_WRITES_FIRST = "c10d::"
# So does this one, when it trains: the running mean and variance.
_ALSO = {"aten::native_batch_norm": (3, 4)}
_ONLY_READS = ("c10d::send", "c10d::check_for_nan")


def written_storages(program: Program) -> set[int]:
    """Those that an op has in a place which its schema marks as written."""
    found: set[int] = set()
    for op in program.ops:
        schema = program.schemas.get(op.name, "")
        if op.name.startswith(_WRITES_FIRST) and op.name not in _ONLY_READS:
            found.update(program.slots[part.slot].storage for part in _tensors(op.args[0]))
        for place in _ALSO.get(op.name, ()):
            found.update(program.slots[part.slot].storage for part in _tensors(op.args[place]))
        if "!" not in schema:
            continue
        for argument, value in zip(arguments(schema), op.args, strict=False):
            if argument.written:
                found.update(program.slots[part.slot].storage for part in _tensors(value))
    return found


def _tensors(value: Any) -> Iterator[Ref | StorageOf]:
    if isinstance(value, Ref | StorageOf):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _tensors(part)
