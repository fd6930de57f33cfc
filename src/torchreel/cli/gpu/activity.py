"""The other sections of `torchreel gpu`: kernels, streams, launches, collectives, copies and graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchreel._units import bytes_text, count_text
from torchreel.analyze.units import percent_text
from torchreel.cli.terminal.table import Column, one_line
from torchreel.cli.terminal.units import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from torchreel.analyze.gpu.answers import Gpu
    from torchreel.cli.gpu.screen import Section


def kernels(answers: Gpu, limit: int | None) -> Section:
    """Those that took longest."""
    heading, rows = _first("Kernels", answers.kernels, limit, "names")
    columns = [
        Column("Time", [time_text(row["device_ns"]) for row in rows], number=True),
        Column("Share", [f"{row['device_percent']:.1f}%" for row in rows], number=True),
        Column("Calls", [f"{row['calls']:,}" for row in rows], number=True),
        Column("Average", [time_text(row["average_ns"]) for row in rows], number=True),
        Column("Kind", [row["kind"] for row in rows]),
        Column("Name", [one_line(row["name"]) for row in rows]),
    ]
    return heading, [], columns if rows else []


def streams(answers: Gpu, limit: int | None) -> Section:
    """The busiest, and why they waited."""
    table = answers.streams.sort_by([("busy_ns", "descending")])
    heading, rows = _first("Streams", table, limit, "streams")
    several = len({(row["process"], row["device"]) for row in answers.streams.to_pylist()}) > 1
    columns = [
        Column("Stream", [_stream(row, several) for row in rows]),
        Column("Activities", [f"{row['activities']:,}" for row in rows], number=True),
        Column("Busy", [time_text(row["busy_ns"]) for row in rows], number=True),
        Column("Idle", [time_text(row["idle_ns"]) for row in rows], number=True),
        Column("by the host", [time_text(row["idle_host_ns"]) for row in rows], number=True),
        Column("back to back", [time_text(row["idle_back_to_back_ns"]) for row in rows], number=True),
        Column("other", [time_text(row["idle_other_ns"]) for row in rows], number=True),
        Column("Longest queue", [f"{row['queue_max']:,}" for row in rows], number=True),
    ]
    return heading, [], columns if rows else []


def _stream(row: dict[str, Any], several: bool) -> str:
    name = "(none)" if row["stream"] is None else str(row["stream"])
    return f"{row['process']}/{row['device']}/{name}" if several else name


def launches(answers: Gpu) -> Section:
    """A sentence per process."""
    rows = answers.launches.to_pylist()
    sentences = []
    for row in rows:
        who = f"Process {row['process']}: " if len(rows) > 1 else ""
        short = percent_text(100 * row["shorter_than_call"] / row["pairs"])
        sentences.append(
            f"{who}{count_text(row['pairs'], 'launch')} took {time_text(row['call_ns'])} of the host for "
            f"{time_text(row['kernel_ns'])} of devices; {short} of the activities are shorter than the call that "
            f"launched them. From the end of a call to its activity: {time_text(row['delay_median_ns'])} in the median."
        )
        if row["before_call"]:
            sentences.append(
                f"{who}{row['before_call']:,} began before their launch: the clocks of host and device differ."
            )
    return "Launches", sentences, []


def collectives(answers: Gpu, limit: int | None) -> Section:
    """By name, group and size, and who was late."""
    heading, rows = _first("Collectives", answers.collectives, limit, "kinds")
    columns = [
        Column("Name", [one_line(row["name"] or "") for row in rows]),
        Column("Group", [one_line(row["group"] or "") for row in rows]),
        Column("Count", [f"{row['count']:,}" for row in rows], number=True),
        Column("Bytes", ["" if row["bytes"] is None else bytes_text(row["bytes"]) for row in rows], number=True),
        Column("Time", [time_text(row["ns"]) for row in rows], number=True),
        Column(
            "Exposed", ["" if row["exposed_ns"] is None else time_text(row["exposed_ns"]) for row in rows], number=True
        ),
        Column("Bus GB/s", ["" if row["bus_gbps"] is None else f"{row['bus_gbps']:.1f}" for row in rows], number=True),
    ]
    late = answers.stragglers.to_pylist()[:1]
    sentences = [
        f"The latest start: rank {row['rank'] if row['rank'] is not None else '?'} entered {row['name']} number "
        f"{row['seq']} of group {row['group'] or '?'} {time_text(row['late_ns'])} after the first."
        for row in late
        if row["late_ns"]
    ]
    return heading, sentences, [column for column in columns if any(column.cells)] if rows else []


def copies(answers: Gpu) -> Section:
    """By direction, with their speed."""
    rows = answers.copies.to_pylist()
    columns = [
        Column("Direction", [row["direction"] for row in rows]),
        Column("Count", [f"{row['count']:,}" for row in rows], number=True),
        Column("Bytes", [bytes_text(row["bytes"]) for row in rows], number=True),
        Column("Time", [time_text(row["ns"]) for row in rows], number=True),
        Column("GB/s", [f"{row['bytes'] / row['ns']:.1f}" if row["ns"] else "" for row in rows], number=True),
    ]
    return "Copies", [], columns if rows else []


def graphs(answers: Gpu) -> Section:
    """A sentence, if there were any."""
    rows = answers.graphs.to_pylist()
    sentences = [
        f"{count_text(row['launches'], 'launch')} of graphs ran {count_text(row['activities'], 'activity')}."
        for row in rows
    ]
    return "Graphs", sentences, []


def _first(noun: str, table: pa.Table, limit: int | None, of: str) -> tuple[str, list[dict[str, Any]]]:
    rows = table.slice(0, limit).to_pylist()
    return (f"{noun}: {len(rows)} of {table.num_rows:,} {of}" if len(rows) < table.num_rows else noun), rows
