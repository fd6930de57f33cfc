"""The kernels of one process as arrays with a row per activity of a device, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.model.calls import Calls
from torchreel.reel.columns import Ints, ints, texts

COLUMNS = ["id", "device", "stream", "name", "start_ns", "dur_ns", "op", "kind", "launch", "step", "module"]


@dataclass(frozen=True)
class Kernels:
    """The kernels of one process. `op` and `launch` are rows of its calls, or NOTHING."""

    id: Ints
    device: Ints
    devices: list[str]
    stream: Ints
    name: Ints
    names: list[str]
    kind: Ints
    kinds: list[str]
    start: Ints
    end: Ints
    op: Ints
    launch: Ints
    step: Ints
    module: Ints

    def __len__(self) -> int:
        return len(self.id)

    @property
    def dur(self) -> Ints:
        return self.end - self.start

    def text(self, row: int) -> str:
        """The name of a kernel."""
        return self.names[int(self.name[row])] if self.name[row] >= 0 else ""

    def kind_of(self, row: int) -> str:
        """compute, communication, copy, set or other; empty where the reel does not say."""
        return self.kinds[int(self.kind[row])] if self.kind[row] >= 0 else ""

    def where(self, device: str | None = None, step: int | None = None) -> Ints:
        """The rows of a device, and of the step in which they were launched; all by default."""
        keep = np.ones(len(self), bool)
        if device is not None:
            keep &= np.array([*(name == device for name in self.devices), False], bool)[self.device]
        if step is not None:
            keep &= self.step == step
        return np.flatnonzero(keep)


def kernels_of(table: pa.Table, calls: Calls) -> Kernels:
    """The kernels of one process, from the columns COLUMNS of its kernels."""
    start = ints(table, "start_ns", 0)
    table = table.take(np.lexsort((ints(table, "id"), start)))
    start = ints(table, "start_ns", 0)
    device, devices = texts(table, "device")
    name, names = texts(table, "name")
    kind, kinds = texts(table, "kind")
    launch = calls.rows(ints(table, "launch"))
    op = calls.rows(ints(table, "op"))
    return Kernels(
        id=ints(table, "id"),
        device=device,
        devices=devices,
        stream=ints(table, "stream"),
        name=name,
        names=names,
        kind=kind,
        kinds=kinds,
        start=start,
        end=start + np.maximum(ints(table, "dur_ns", 0), 0),
        op=op,
        launch=launch,
        step=ints(table, "step"),
        module=ints(table, "module"),
    )
