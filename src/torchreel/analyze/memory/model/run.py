"""One process's part of a reel, for questions about memory: each table is read once, when it is first asked for."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.memory.model.calls import Calls, calls_of
from torchreel.analyze.memory.model.stacks import Stacks, stacks_of
from torchreel.reel import Reel
from torchreel.reel.columns import Ints, ints, rows_of


@dataclass(frozen=True)
class Run:
    """What is known of a process beside its allocs."""

    reel: Reel
    process: int

    @functools.cached_property
    def calls(self) -> Calls:
        return calls_of(self.reel, self.process)

    @functools.cached_property
    def ranges(self) -> Ints:
        """The places among the calls of the user's ranges."""
        return np.flatnonzero(self.calls.of_kind("range"))

    @functools.cached_property
    def stacks(self) -> Stacks:
        return stacks_of(self.reel, self.process)

    @functools.cached_property
    def steps(self) -> pa.Table:
        return self._table("steps").sort_by("start_ns")

    @functools.cached_property
    def annotations(self) -> pa.Table:
        table = self._table("annotations")
        return table if table["time_ns"].null_count else table.sort_by("time_ns")

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of the allocators, by name."""
        found = {}
        for row in self._table("settings").to_pylist():
            try:
                found[str(row["name"])] = json.loads(row["value"] or "null")
            except (ValueError, RecursionError):
                continue  # not what torch writes
        return found

    @functools.cached_property
    def _modules(self) -> tuple[Ints, list[str]]:
        table = self._table("modules").sort_by("id")
        return ints(table, "id"), [path or "" for path in table["path"].to_pylist()]

    def module_paths(self, modules: Ints) -> list[str | None]:
        """The path of each module, or None."""
        ids, paths = self._modules
        return [paths[row] if row >= 0 else None for row in rows_of(ids, modules)]

    def _table(self, name: str) -> pa.Table:
        import pyarrow.compute as pc  # slow to import, and few questions need it

        table = self.reel.table(name)
        return table.filter(pc.equal(table["process"], self.process))
