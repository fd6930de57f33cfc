"""The rows of `torchreel report --by kernel`: kernels, copies and sets of devices by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchreel.cli.terminal.interrupt import interruptible
from torchreel.cli.terminal.units import time_text
from torchreel.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from torchreel.cli.terminal.table import Column
    from torchreel.reel import Reel

_SORTS = {"self": "device_ns", "total": "device_ns", "device": "device_ns", "count": "calls", "average": "average_ns"}


def kernel_rows(reel: Reel, groups: tuple[str, ...], sort: str, kinds: tuple[str, ...]) -> pa.Table:
    """The table, the greatest first; options that mean nothing for kernels are refused."""
    if groups != ("kernel",):
        raise OptionError("Kernels are grouped by their name alone: give --by kernel without another group.")
    if kinds:
        raise OptionError("--kind chooses calls of the host: --by kernel has no use for it.")
    if sort not in _SORTS:
        raise OptionError(f"Kernels have no {sort} to sort by: give one of {', '.join(_SORTS)}.")
    from torchreel.analyze.gpu.activities import activities
    from torchreel.analyze.gpu.kernels import kernels

    table = interruptible(lambda: kernels(activities(reel)))
    return table.sort_by([(_SORTS[sort], "descending"), ("name", "ascending"), ("kind", "ascending")])


def kernel_columns(rows: pa.Table) -> list[Column]:
    """The same for a person."""
    from torchreel.cli.terminal.table import Column, one_line

    values = {name: rows[name].to_pylist() for name in rows.column_names}
    times = {"Device": "device_ns", "Min": "min_ns", "Max": "max_ns", "Average": "average_ns"}
    shown = {header: [time_text(ns) for ns in values[name]] for header, name in times.items()}
    return [
        Column("Name", [one_line(name) for name in values["name"]]),
        Column("Kind", values["kind"]),
        Column("Device %", [f"{share:.2f}%" for share in values["device_percent"]], number=True),
        *(Column(header, cells, number=True) for header, cells in shown.items()),
        Column("# of Calls", [f"{calls:,}" for calls in values["calls"]], number=True),
    ]
