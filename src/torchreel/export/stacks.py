"""Reel -> lines of stacks for flame graphs, as torch.profiler's `export_stacks` writes them."""

from __future__ import annotations

import re

from torchreel.errors import OptionError
from torchreel.export.output import Progress, Target, writing
from torchreel.export.texts import Details, whole
from torchreel.reel import Reel

_ON_DEVICE = """
SELECT o.process, o.stack, sum(k.dur_ns)::BIGINT AS ns
FROM kernels k JOIN ops o ON o.process = k.process AND o.id = k.op
WHERE o.stack IS NOT NULL AND k.device LIKE '{device}%' GROUP BY ALL ORDER BY ALL
"""
# From torch.profiler's name of a metric to the time of each stack.
METRICS = {
    # Calls of Python functions and modules are frames of stacks, and have none of their own.
    "self_cpu_time_total": "SELECT process, stack, sum(self_ns)::BIGINT AS ns FROM ops "
    "WHERE stack IS NOT NULL AND kind NOT IN ('python', 'module') GROUP BY ALL ORDER BY ALL",
    "self_cuda_time_total": _ON_DEVICE.format(device="cuda"),
    "self_xpu_time_total": _ON_DEVICE.format(device="xpu"),
    "self_privateuse1_time_total": _ON_DEVICE.format(device="privateuse"),
}

# A line is frames joined by ';', a space and a number: no frame may hold any of these, or what ends a line.
_RESERVED = re.compile(r"[\s;\x00-\x1f\x7f-\x9f]")


def write(reel: Reel, target: Target, progress: Progress) -> None:
    """Write the stacks of all ops with their own time on the CPU."""
    write_stacks(reel, target, progress=progress)


def write_stacks(
    reel: Reel, target: Target, metric: str = "self_cpu_time_total", progress: Progress | None = None
) -> None:
    """Write one line per distinct stack: its frames, the outermost first, and its whole microseconds, if any."""
    query = METRICS.get(metric)
    if query is None:
        raise OptionError(f"There is no metric {metric!r} to export stacks by: choose one of {', '.join(METRICS)}.")
    totals: dict[str, int] = {}
    details: dict[int, Details] = {}
    for row in reel.sql(query).to_pylist():
        process = row["process"]
        if process not in details:
            details[process] = Details(reel, process)
        frames = reversed(details[process].frames(row["stack"]))
        line = ";".join(_RESERVED.sub("_", whole(frame)) for frame in frames)
        totals[line] = totals.get(line, 0) + row["ns"]
    with writing(target) as file:
        for line, nanoseconds in totals.items():
            if line and nanoseconds >= 1000:
                file.write(f"{line} {nanoseconds // 1000}\n".encode())
    if progress is not None:
        count = reel.sql("SELECT count(*) AS n FROM ops")["n"][0].as_py()
        progress(count, count)
