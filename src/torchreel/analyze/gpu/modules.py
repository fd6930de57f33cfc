"""Modules: how long the device worked for each layer, forward, backward and recomputed apart.

`self_device_ns` is the time of kernels that were launched in a module and in none of its submodules; in backward, of
those whose forward call was. `device_ns` is that with the submodules'; `forward_ns`, `backward_ns` and `recompute_ns`
are its parts. Kernels of no module have a row of their own, so that `self_device_ns` adds up to the time of
all kernels, to the nanosecond.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.model.phases import PHASES, kernel_phases
from torchreel.analyze.gpu.model.run import DeviceRun, device_runs
from torchreel.reel import Reel
from torchreel.reel.columns import Ints, ints, rows_of

NO_MODULE = "(no module)"
NO_MODULES = (
    "No module was recorded: give torch.profiler with_modules=True and with_stack=True, or record with --modules."
)

_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("class", pa.string()),
        ("parent", pa.string()),  # the path of the module that holds it
        ("kernels", pa.int64()),  # launched in it and in none of its submodules
        ("self_device_ns", pa.int64()),
        ("device_ns", pa.int64()),
        ("forward_ns", pa.int64()),
        ("backward_ns", pa.int64()),
        ("recompute_ns", pa.int64()),
    ]
)


class _Node:
    """A module of all processes: kernels and time of each phase, its own and with its submodules."""

    def __init__(self, class_name: str | None, parent: str | None) -> None:
        self.class_name = class_name
        self.parent = parent
        self.kernels = 0
        self.own = np.zeros(len(PHASES), np.int64)
        self.total = np.zeros(len(PHASES), np.int64)


def module_device_time(reel: Reel, step: int | None = None, device: str | None = None) -> pa.Table:
    """A row per module that the device worked for, the longest first; NO_MODULE is the row of all other kernels.

    Modules of several processes are one if their paths are. No rows for a reel without kernels.
    """
    nodes: dict[str, _Node] = {}
    for run in device_runs(reel):
        _add(nodes, run, run.kernels.where(device, step))
    for node in list(nodes.values()):
        above, seen = node.parent, 0
        node.total += node.own
        while above in nodes and seen < len(nodes):  # a damaged table may go round in circles
            nodes[above].total += node.own
            above, seen = nodes[above].parent, seen + 1
    rows = [(path, node) for path, node in nodes.items() if node.total.any() or node.kernels]
    rows.sort(key=lambda row: (-int(row[1].total.sum()), row[0]))
    return pa.Table.from_pylist([_row(path, node) for path, node in rows], schema=_SCHEMA)


def _row(path: str, node: _Node) -> dict[str, Any]:
    phases = {f"{phase}_ns": ns for phase, ns in zip(PHASES, node.total.tolist(), strict=True)}
    return {
        "path": path,
        "class": node.class_name,
        "parent": node.parent,
        "kernels": node.kernels,
        "self_device_ns": int(node.own.sum()),
        "device_ns": int(node.total.sum()),
        **phases,
    }


def _add(nodes: dict[str, _Node], run: DeviceRun, chosen: Ints) -> None:
    table = run.rows("modules", ["id", "path", "class", "parent"])
    table = table.take(np.argsort(ints(table, "id"), kind="stable"))
    ids, parents = ints(table, "id"), ints(table, "parent")
    paths = [path or "" for path in table["path"].to_pylist()]
    names = dict(zip(ids.tolist(), paths, strict=True))
    for path, class_name, parent in zip(paths, table["class"].to_pylist(), parents.tolist(), strict=True):
        nodes.setdefault(path, _Node(class_name, names.get(parent)))
    module = rows_of(ids, run.kernels.module[chosen])
    phase = kernel_phases(run)[chosen]
    sums = np.zeros((len(ids) + 1, len(PHASES)), np.int64)
    counts = np.zeros(len(ids) + 1, np.int64)
    np.add.at(sums, (module, phase), run.kernels.dur[chosen])
    np.add.at(counts, module, 1)
    if counts[-1]:
        nodes.setdefault(NO_MODULE, _Node(None, None))
    for path, own, count in zip([*paths, NO_MODULE], sums, counts.tolist(), strict=True):
        if count:
            nodes[path].own += own
            nodes[path].kernels += count
