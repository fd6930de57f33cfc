"""Which storages a program writes."""

from __future__ import annotations

from torchreel.program.model import Program, Ref, StorageOf
from torchreel.program.schema import arguments


def written_storages(program: Program) -> set[int]:
    """Those that an op has in a place which its schema marks as written."""
    found = set()
    for op in program.ops:
        schema = program.schemas.get(op.name, "")
        if "!" not in schema:
            continue
        for argument, value in zip(arguments(schema), op.args, strict=False):
            if not argument.written:
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Ref | StorageOf):
                    found.add(program.slots[part.slot].storage)
    return found
