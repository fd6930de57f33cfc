"""The run as the rules of findings see it: its steps and their phases, and a connection to its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from torchreel.analyze.connection import Range, opened
from torchreel.analyze.time.phases import TypicalStep, average_step, phases, steps_of
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Run:
    """The whole steps of the process that has most of them; without steps, the recording as one."""

    step: TypicalStep
    steps: tuple[int, ...]  # their numbers
    connection: duckdb.DuckDBPyConnection

    @property
    def what(self) -> str:
        return "a step" if self.steps else "the run"

    def share(self, ns: int) -> float:
        """In percent of a step."""
        return 100.0 * ns / self.step.wall_ns

    @property
    def calls(self) -> str:
        """A condition on ops: the calls of these steps."""
        condition = f"process = {self.step.process}"
        return f"{condition} AND step IN ({', '.join(map(str, self.steps))})" if self.steps else condition

    def per_step(self, total: float) -> float:
        return total / max(len(self.steps), 1)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The answer to a query as rows by name."""
        rows: list[dict[str, Any]] = self.connection.sql(query).to_arrow_table().to_pylist()
        return rows


@contextmanager
def opened_run(reel: Reel, table: pa.Table | None = None, within: Range | None = None) -> Iterator[Run | None]:
    """None if no call was recorded. With a range, the calls are those of the steps in it."""
    rows = steps_of(phases(reel) if table is None else table)
    step = average_step(rows)
    if step is None:
        yield None
        return
    if within is not None:
        rows = [row for row in rows if row["start_ns"] >= within[0] and row["end_ns"] <= within[1]]
    numbers = tuple(row["step"] for row in rows if row["step"] is not None)
    with opened(reel, ("ops", "inputs", "modules", "stacks", "frames", "processes"), within) as connection:
        yield Run(step, numbers, connection)
