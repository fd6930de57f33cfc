"""Sections of `torchreel gpu` on what devices worked for: modules, FLOP, and the ops behind replayed graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchreel.analyze.gpu.modules import NO_MODULE
from torchreel.analyze.units import percent_text
from torchreel.cli.terminal.table import Column, one_line
from torchreel.cli.terminal.units import time_text

if TYPE_CHECKING:
    from torchreel.analyze.gpu.answers import Gpu
    from torchreel.analyze.gpu.roofline import Utilisation
    from torchreel.cli.gpu.screen import Section


def modules(answers: Gpu, limit: int | None) -> Section:
    """The modules that take most of their own; nothing where none was recorded."""
    rows = answers.modules.to_pylist()
    heading = "Modules"
    if all(row["path"] == NO_MODULE for row in rows):
        return heading, [], []
    few = sorted(rows, key=lambda row: (-row["self_device_ns"], row["path"]))[:limit]
    phases = {"Forward": "forward_ns", "Backward": "backward_ns", "Recompute": "recompute_ns"}
    columns = [
        Column("Device, own", [time_text(row["self_device_ns"]) for row in few], number=True),
        Column("With submodules", [time_text(row["device_ns"]) for row in few], number=True),
        *(
            Column(name, [time_text(row[key]) for row in few], number=True)
            for name, key in phases.items()
            if key == "forward_ns" or any(row[key] for row in rows)
        ),
        Column("Kernels", [f"{row['kernels']:,}" for row in few], number=True),
        Column("Module", [one_line(row["path"]) for row in few], keep_end=True),
    ]
    return heading, [], columns


def roofline(answers: Gpu, limit: int | None) -> Section:
    """MFU, and the ops with FLOP that take most; nothing where no FLOP are known and no peak was given."""
    heading = "Roofline"
    if answers.of_cpu or (not answers.roofline.num_rows and answers.peak is None):
        return heading, [], []
    rows = answers.roofline.slice(0, limit).to_pylist()
    columns = [
        Column("Device", [time_text(row["device_ns"]) for row in rows], number=True),
        Column("TFLOP/s", [_number(row["tflops"]) for row in rows], number=True),
        Column("GB/s", [_number(row["gbps"]) for row in rows], number=True),
        Column("FLOP/byte", [_number(row["intensity"]) for row in rows], number=True),
        Column("Of roof", [_of_roof(row) for row in rows], number=True),
        Column("Dtype", [row["dtype"] for row in rows]),
        Column("Op", [row["op"] for row in rows]),
        Column("Inputs", [_shapes(row["inputs"]) for row in rows]),
    ]
    sentences = [_utilised(each, len(answers.mfu) > 1) for each in answers.mfu if each.flops or each.recompute_flops]
    return heading, [*sentences, *answers.roofline_notes], [column for column in columns if any(column.cells)]


def _utilised(each: Utilisation, several: bool) -> str:
    who = f"Process {each.process}: " if several else ""
    work = f"{who}{each.flops / 1e12:,.3f} TFLOP in {time_text(each.window_ns)}"
    again = f", and {each.recompute_flops / 1e12:,.3f} run again" if each.recompute_flops else ""
    if each.mfu_percent is None:
        return f"{work}{again}."
    hardware = f", {each.hfu_percent:.2f} % with what was run again" if each.recompute_flops else ""
    return f"{work}{again}: MFU {each.mfu_percent:.2f} %{hardware} (peak: {each.peak_source})."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _of_roof(row: dict[str, Any]) -> str:
    return "" if row["percent"] is None else f"{percent_text(row['percent'])} {row['bound']}"


def _shapes(dims: str | None) -> str:
    """The sizes of tensors, without what is none."""
    return one_line((dims or "").replace(", []", "").replace("[], ", ""))


def replays(answers: Gpu, limit: int | None) -> Section:
    """The ops behind replayed graphs, and how many were found; nothing where no graph was replayed."""
    sums: dict[tuple[str, str], list[int]] = {}
    for row in answers.replays.to_pylist():
        values = sums.setdefault((row["op"] or "", row["line"] or ""), [0, 0])
        values[0] += row["device_ns"]
        values[1] += 1
    rows = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))[:limit]
    columns = [
        Column("Device", [time_text(ns) for _, (ns, _) in rows], number=True),
        Column("Kernels", [f"{count:,}" for _, (_, count) in rows], number=True),
        Column("Op of the capture", [one_line(op) for (op, _), _ in rows]),
        Column("Your line", [one_line(line) for (_, line), _ in rows], keep_end=True),
    ]
    return "Replayed graphs", answers.replay_notes, [column for column in columns if any(column.cells)]
