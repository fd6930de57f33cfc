"""CpuRun: what a process did with CPU memory, and the ops that it ran, as a reel holds them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torchreel.errors import OptionError
from torchreel.reel.query import connect, unreadable

if TYPE_CHECKING:
    from types import TracebackType

    import numpy.typing as npt
    import pyarrow as pa

    from torchreel.reel import Reel

_TABLES = ("allocs", "ops", "inputs")
_MADE = ("alloc", "preexisting")


@dataclass(frozen=True)
class Op:
    """One call, with its arguments as far as they were recorded."""

    name: str
    thread: int
    start_ns: int
    end_ns: int
    dims: list[Any]
    strides: list[Any]
    dtypes: list[str]
    scalars: list[str]


class CpuRun:
    """The process of a reel that held most memory on the CPU: its allocs and frees in order, and its ops.

    Questions about ops go to the reel's files, over one connection: close() ends it, or `with CpuRun(reel) as run:`.
    """

    def __init__(self, reel: Reel) -> None:
        self._reel = reel
        self._connection = connect(reel, _TABLES)
        self.process, self.peaks = self._largest_process()
        rows = self._rows(
            "SELECT coalesce(time_ns, 0) AS time_ns, action, size, op, coalesce(alloc, id) AS block"
            f" FROM allocs WHERE process = {self.process} AND device = 'cpu'"
            " AND action IN ('preexisting', 'alloc', 'free') ORDER BY id"
        )
        # In the order of the events, which two threads may have timed the other way round.
        self.times: npt.NDArray[np.int64] = np.maximum.accumulate(rows["time_ns"].to_numpy())
        self.blocks: npt.NDArray[np.int64] = rows["block"].to_numpy()
        self.sizes: list[int | None] = rows["size"].to_pylist()
        self.ops: list[int | None] = rows["op"].to_pylist()
        self.made = [action in _MADE for action in rows["action"].to_pylist()]
        self.header = next((row for row in reel.process_rows() if row["process"] == self.process), {})
        self._backward = self._intervals("name LIKE 'autograd::engine::evaluate_function%'")

    def __enter__(self) -> CpuRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def has_shapes(self) -> bool:
        """Whether the sizes of the ops' arguments were recorded."""
        count = self._rows(f"SELECT count(*) AS n FROM ops WHERE process = {self.process} AND inputs IS NOT NULL")
        return bool(count["n"][0].as_py())

    def counts(self) -> dict[str, int]:
        """How often each op was called."""
        rows = self._rows(
            f"SELECT name::VARCHAR AS name, count(*) AS n FROM ops WHERE process = {self.process} GROUP BY ALL"
        )
        return dict(zip(rows["name"].to_pylist(), rows["n"].to_pylist(), strict=True))

    def moves(self) -> int:
        """How many calls of .to(device) had nothing to do, as the tensor was on the CPU already."""
        rows = self._rows(
            "SELECT count(*) AS n FROM ops AS o WHERE o.name = 'aten::to' AND overload IN ('device', 'dtype_layout')"
            f" AND o.process = {self.process} AND NOT EXISTS"
            " (SELECT 1 FROM ops AS c WHERE c.process = o.process AND c.parent = o.id)"
        )
        count: int = rows["n"][0].as_py()
        return count

    def calls(self, names: Iterable[str]) -> Iterator[Op]:
        """The calls of some ops, in order."""
        listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
        rows = self._rows(
            "SELECT o.name::VARCHAR AS name, thread, start_ns, start_ns + dur_ns AS end_ns, dims, strides, dtypes,"
            " scalars FROM ops AS o LEFT JOIN inputs AS i ON i.process = o.process AND i.id = o.inputs"
            f" WHERE o.process = {self.process} AND o.name IN ({listed}) ORDER BY start_ns"
        )
        for row in rows.to_pylist():
            lists = [_list(row[column]) for column in ("dims", "strides", "dtypes", "scalars")]
            yield Op(row["name"], row["thread"], row["start_ns"], row["end_ns"], *lists)

    @functools.cached_property
    def names_of_ops(self) -> dict[int, tuple[str, list[str]]]:
        """The name and the dtypes of the arguments of each call that allocated, by its id."""
        rows = self._rows(
            "SELECT o.id, o.name::VARCHAR AS name, i.dtypes FROM ops AS o"
            f" JOIN (SELECT DISTINCT op FROM allocs WHERE process = {self.process}) AS a ON a.op = o.id"
            " LEFT JOIN inputs AS i ON i.process = o.process AND i.id = o.inputs"
            f" WHERE o.process = {self.process}"
        )
        columns = (rows[name].to_pylist() for name in ("id", "name", "dtypes"))
        return {id: (name, _list(dtypes)) for id, name, dtypes in zip(*columns, strict=True)}

    def ranges(self, pattern: str) -> list[tuple[int, int]]:
        """Beginning and end of the calls whose names are LIKE a pattern."""
        starts, ends = self._intervals(f"name LIKE '{pattern}'")
        return list(zip(starts.tolist(), ends.tolist(), strict=True))

    def in_backward(self, op: Op) -> bool:
        """Whether autograd called it in a backward pass."""
        starts, ends = self._backward
        last = int(np.searchsorted(starts, op.start_ns, side="right")) - 1
        return last >= 0 and int(ends[last]) >= op.start_ns

    def after(self, op: Op) -> int:
        """The place in the events at which the op had ended."""
        return int(np.searchsorted(self.times, op.end_ns, side="right"))

    def _intervals(self, condition: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        rows = self._rows(
            f"SELECT start_ns, start_ns + dur_ns AS end_ns FROM ops WHERE process = {self.process} AND {condition}"
            " ORDER BY start_ns"
        )
        return rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()

    def _largest_process(self) -> tuple[int, dict[int, int]]:
        """The process with the highest peak of CPU memory, and the peaks of all."""
        rows = self._rows(
            "SELECT process, max(total) FILTER (device = 'cpu') AS peak, count(*) FILTER (device <> 'cpu') AS others"
            " FROM allocs GROUP BY process ORDER BY peak DESC NULLS LAST, process"
        ).to_pylist()
        peaks = {row["process"]: row["peak"] for row in rows if row["peak"] is not None}
        if peaks:
            return next(iter(peaks)), peaks
        if any(row["others"] for row in rows):
            raise OptionError(
                f"{self._reel.path} holds the memory of a GPU already, and none of the CPU to predict it from: "
                "ask 'torchreel simulate' about it without --predict."
            )
        raise OptionError(
            f"{self._reel.path} holds no memory events, from which a GPU's memory is predicted: "
            "record the program with 'torchreel record --memory --shapes', or torchreel.record(..., memory=True)."
        )

    def _rows(self, query: str) -> pa.Table:
        import duckdb

        try:
            table: pa.Table = self._connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise unreadable(self._reel, _TABLES, error) from None
        return table


@functools.lru_cache(maxsize=10_000)
def _list(text: str | None) -> list[Any]:
    """A column of the table inputs; nothing, where it was not recorded or makes no sense."""
    try:
        value = json.loads(text) if text else []
    except ValueError:
        return []
    return value if isinstance(value, list) else []
