"""Programs of every kind that Python can be: what it reads, writes and does besides tensors."""

from __future__ import annotations

from tests.graphs.guards.kinds import (
    addresses,
    c_calls,
    containers,
    effects,
    functions,
    gradients,
    lookups,
    memory,
    modes,
    modules,
    process,
    protocols,
    reads,
    replayed,
    tensors,
    training,
    values,
)
from tests.graphs.guards.kinds.registry import KINDS

# Each enters its programs as it is imported.
FILES = (
    reads, lookups, containers, values, addresses, c_calls, protocols, effects, process, tensors, functions, modules,
    training, gradients, memory, modes, replayed,
)  # fmt: skip

__all__ = ["FILES", "KINDS"]
