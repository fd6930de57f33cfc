"""Which ops of a program are not what they were, under the torch that is running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torchreel._torch.dispatch import FunctionSchema, find_schema
from torchreel.program.model import Program

_OURS = "torchreel::"
_SHOWN = 8


@dataclass(frozen=True)
class SchemaChange:
    """An op that the tape calls, and that would not do the same now."""

    name: str
    recorded: str  # empty where the tape does not say
    now: str  # empty where this torch has no such op

    def __str__(self) -> str:
        if not self.now:
            return f"{self.name} is not there"
        return f"{self.name} was {self.recorded or 'called with other arguments'} and is {self.now}"


def changes(program: Program) -> list[SchemaChange]:
    """The ops whose schema is another one, or that are not there, by name."""
    counts: dict[str, set[int]] = {}
    for op in program.ops:
        counts.setdefault(op.name, set()).add(len(op.args))
    found = []
    for name in sorted(counts):
        if name.startswith(_OURS):
            continue
        schema = _schema(name)
        recorded = program.schemas.get(name, "")
        if schema is None:
            found.append(SchemaChange(name, recorded, ""))
        elif (recorded and recorded != str(schema)) or counts[name] != {len(schema.arguments)}:
            found.append(SchemaChange(name, recorded if recorded != str(schema) else "", str(schema)))
    return found


def sentence(program: Program, found: Sequence[SchemaChange]) -> str:
    """What load says of the changes."""
    names = "; ".join(str(change) for change in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"This tape was made by torch {program.provenance.torch}, and under torch {torch.__version__} it cannot be "
        f"replayed, because ops have changed: {names}{more}."
    )


def _schema(name: str) -> FunctionSchema | None:
    base, _, overload = name.partition(".")
    try:
        found: FunctionSchema = find_schema(base, overload)
    except RuntimeError:
        return None
    return found
