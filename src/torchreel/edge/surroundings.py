"""Which call a span of time lies in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchreel.edge.alignment import Span

Row = dict[str, Any]


class Surroundings:
    """Asked for one span after the other, in the order in which they begin."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._starts = np.array([row["start_ns"] for row in rows], dtype=np.int64)
        self._ends = self._starts + np.array([row["dur_ns"] for row in rows], dtype=np.int64)
        self._added: list[Row] = []
        """Added calls that have not ended yet."""

    def add(self, row: Row) -> None:
        """Add a call. It begins no earlier than those that were added before."""
        self._added.append(row)

    def innermost(self, span: Span, thread: int | None) -> Row | None:
        """The shortest call around a span: on this thread, if there is one, else on any."""
        self._added = [row for row in self._added if _end(row) >= span[0]]
        known = np.flatnonzero((self._starts <= span[0]) & (self._ends >= span[1])).tolist()
        around = [self._rows[index] for index in known]
        around += [row for row in self._added if _end(row) >= span[1]]
        here = [row for row in around if row["thread"] == thread]
        return min(here or around, key=lambda row: (row["dur_ns"], -row["depth"]), default=None)


def _end(row: Row) -> int:
    end: int = row["start_ns"] + row["dur_ns"]
    return end
