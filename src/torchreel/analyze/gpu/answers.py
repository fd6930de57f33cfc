"""All answers about the devices of a reel, each found when it is asked for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import Activities, activities
from torchreel.analyze.gpu.collectives import collectives
from torchreel.analyze.gpu.copies import copies
from torchreel.analyze.gpu.counters import counters
from torchreel.analyze.gpu.critical_path import CriticalPath, critical_path
from torchreel.analyze.gpu.devices import devices
from torchreel.analyze.gpu.graphs import graphs
from torchreel.analyze.gpu.host import host
from torchreel.analyze.gpu.idle import idle_causes
from torchreel.analyze.gpu.kernels import kernels
from torchreel.analyze.gpu.launches import launches
from torchreel.analyze.gpu.lines import line_device_time
from torchreel.analyze.gpu.missing import missing
from torchreel.analyze.gpu.model.peaks import Peak
from torchreel.analyze.gpu.modules import module_device_time
from torchreel.analyze.gpu.queue import queue
from torchreel.analyze.gpu.ranges import ranges
from torchreel.analyze.gpu.ranks import clocks, stragglers
from torchreel.analyze.gpu.replays import Replays, replays
from torchreel.analyze.gpu.roofline import Roofline, Utilisation, roofline
from torchreel.analyze.gpu.sequences import sequences
from torchreel.analyze.gpu.streams import GAP_NS, streams
from torchreel.analyze.gpu.tensor_cores import tensor_cores
from torchreel.analyze.gpu.utilisation import utilisation
from torchreel.analyze.gpu.what_if import WhatIf, what_if
from torchreel.errors import OptionError
from torchreel.reel import Reel
from torchreel.reel.columns import ints

TABLES = ("devices", "streams", "launches", "copies", "collectives", "graphs", "idle", "critical_path", "what_if")
WORK = ("modules", "lines", "roofline", "replays")
IDLE = ("cause", "ns", "op", "line")
WHAT_IF = pa.schema(
    [
        ("process", pa.int32()),
        ("kernels", pa.int64()),
        ("calls", pa.int64()),
        ("before_ns", pa.int64()),
        ("after_ns", pa.int64()),
        ("saved_ns", pa.int64()),
        ("percent", pa.float64()),
        ("speedup", pa.float64()),
        ("refused", pa.string()),
    ]
)


class Gpu:
    """What the devices of a reel did: each attribute is a pyarrow.Table, and docs/gpu.md says what its columns mean.

    The window is the whole recording, or a step: the activities that were launched in it.
    """

    def __init__(
        self,
        reel: Reel,
        step: int | None = None,
        device: str | None = None,
        gap_ns: int = GAP_NS,
        changes: Sequence[tuple[str, float]] = (),
        peak: Peak | None = None,
    ) -> None:
        self.reel = reel
        self.step = step
        self.device = device
        self.gap_ns = gap_ns
        self.peak = peak
        self.changes = tuple(changes)
        everything = activities(reel)
        self._check(everything)
        self._found = everything.within(step, device)
        self._of_cpu = not len(everything)

    def _check(self, everything: Activities) -> None:
        steps = sorted({row["step"] for row in self.reel.table("steps", ["step"]).to_pylist()})
        if self.step is not None and steps and self.step not in steps:
            raise OptionError(f"{self.reel.path} has no step {self.step}: it has {_steps_text(steps)}.")
        names = [everything.words.devices[code] for code in np.unique(everything.device).tolist()] or ["cpu"]
        if self.device is not None and self.device not in names:
            raise OptionError(f"{self.reel.path} has no device {self.device!r}: it has {', '.join(names)}.")
        if self.gap_ns < 0:
            raise OptionError(f"A gap of {self.gap_ns} ns makes no sense: give a number from 0.")

    @property
    def of_cpu(self) -> bool:
        """Whether the reel has no activity of a device, so that answers are of the CPU."""
        return self._of_cpu

    @functools.cached_property
    def missing(self) -> list[str]:
        """What the recording does not have, what that means, and how to record it, in sentences."""
        of_path = [] if self._of_cpu or not len(self._found) else self._path.notes
        return [*missing(self.reel, self._found, self.step), *of_path]

    @functools.cached_property
    def devices(self) -> pa.Table:
        """Span, busy and idle time of each device, and its compute, communication and memory."""
        if self._of_cpu:
            return host(self.reel, self.step)
        return devices(self.reel, self._found)

    @functools.cached_property
    def streams(self) -> pa.Table:
        """Busy and idle time of each stream, why it waited, and how long its queue was."""
        return streams(self._found, self.gap_ns)

    @functools.cached_property
    def launches(self) -> pa.Table:
        """What launching cost the host, and how long activities waited after it."""
        return launches(self._found)

    @functools.cached_property
    def copies(self) -> pa.Table:
        """Copies and sets of memory, by direction."""
        return copies(self._found)

    @functools.cached_property
    def collectives(self) -> pa.Table:
        """Collectives by group, name and size, with how much was exposed and the bus bandwidth."""
        whole = self.step is None and self.device is None
        return collectives(self.reel, self._found, whole)

    @functools.cached_property
    def graphs(self) -> pa.Table:
        """Replays of graphs."""
        return graphs(self._found)

    @functools.cached_property
    def idle(self) -> pa.Table:
        """Why devices were idle: cause, time, and the op and line of the host that it is charged to."""
        table = idle_causes(self.reel, self.step, self.device).select(IDLE)
        summed = table.group_by(["cause", "op", "line"]).aggregate([("ns", "sum")]).rename_columns({"ns_sum": "ns"})
        return summed.select(IDLE).sort_by([("ns", "descending"), ("cause", "ascending"), ("op", "ascending")])

    @functools.cached_property
    def _path(self) -> CriticalPath:
        return critical_path(self.reel, self.step)

    @functools.cached_property
    def critical_path(self) -> pa.Table:
        """What decided how long it took: what, for how long, and its share of the path."""
        summed = self._path.rows.group_by("what").aggregate([("ns", "sum")]).rename_columns({"ns_sum": "ns"})
        ns = ints(summed, "ns")
        share = pa.array(100 * ns / max(int(ns.sum()), 1))
        return summed.append_column("percent", share).sort_by([("ns", "descending"), ("what", "ascending")])

    @functools.cached_property
    def _changed(self) -> WhatIf:
        return what_if(self.reel, self.changes, self.step)

    @functools.cached_property
    def what_if(self) -> pa.Table:
        """How long it would take with the changes that were asked for; no rows without any."""
        outcomes = self._changed.outcomes if self.changes else ()
        return pa.Table.from_pylist([outcome.as_dict() for outcome in outcomes], WHAT_IF)

    @property
    def what_if_notes(self) -> list[str]:
        """What the answer to the changes cannot know besides what is missing, in sentences."""
        return [note for note in self._changed.notes if note not in self.missing] if self.changes else []

    @functools.cached_property
    def kernels(self) -> pa.Table:
        """Kernels, copies and sets by name."""
        return kernels(self._found)

    @functools.cached_property
    def modules(self) -> pa.Table:
        """The time of devices by module: forward, backward, and what was run again."""
        return module_device_time(self.reel, self.step, self.device)

    @functools.cached_property
    def lines(self) -> pa.Table:
        """The time of devices by line of the source, in the same way."""
        return line_device_time(self.reel, self.step, self.device)

    @functools.cached_property
    def _roofline(self) -> Roofline:
        return roofline(self.reel, self.peak, self.step)

    @property
    def roofline(self) -> pa.Table:
        """How near ops come to what their device can do, of all devices."""
        return self._roofline.rows

    @property
    def mfu(self) -> tuple[Utilisation, ...]:
        """Model FLOP utilisation of each process."""
        return self._roofline.utilisation

    @property
    def roofline_notes(self) -> list[str]:
        """What FLOP and peaks are not known, in sentences."""
        return [] if self._of_cpu else list(self._roofline.notes)

    @functools.cached_property
    def _replays(self) -> Replays:
        return replays(self.reel)

    @property
    def replays(self) -> pa.Table:
        """Kernels of replayed graphs with the ops and lines of the capture, of the whole recording."""
        return self._replays.rows

    @property
    def replay_notes(self) -> list[str]:
        """How many of these were found, and why not all, in sentences."""
        return list(self._replays.notes)

    @functools.cached_property
    def tensor_cores(self) -> pa.Table:
        """How much of the time of kernels used tensor cores, by their names."""
        return tensor_cores(self._found)

    @functools.cached_property
    def queue(self) -> pa.Table:
        """How long the queue of each stream was."""
        return queue(self._found)

    @functools.cached_property
    def utilisation(self) -> pa.Table:
        """How busy and how full each device was over time."""
        return utilisation(self.reel, self._found, self.step is None)

    @functools.cached_property
    def ranges(self) -> pa.Table:
        """The time of devices by the user's ranges."""
        return ranges(self.reel, self._found)

    @functools.cached_property
    def sequences(self) -> pa.Table:
        """Which kernels each op launches, in their order."""
        return sequences(self.reel, self._found)

    @functools.cached_property
    def counters(self) -> pa.Table:
        """Hardware counters by kernel, op and module, of the whole recording."""
        return counters(self.reel)

    @functools.cached_property
    def stragglers(self) -> pa.Table:
        """Per collective of several ranks, the one that started last, of the whole recording."""
        return stragglers(self.reel)

    @functools.cached_property
    def clocks(self) -> pa.Table:
        """How far the clocks of several ranks differ, by their collectives."""
        return clocks(self.reel)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `gpu --format json` prints them."""
        tables = {name: getattr(self, name).to_pylist() for name in (*TABLES, *WORK)}
        notes = dict.fromkeys([*self.missing, *self.what_if_notes, *self.roofline_notes, *self.replay_notes])
        return tables | {"mfu": [each.as_dict() for each in self.mfu], "missing": list(notes)}

    def __repr__(self) -> str:
        return f"<Gpu of {str(self.reel.path)!r}: {self.devices.num_rows} devices, {len(self._found):,} activities>"


def _steps_text(steps: list[int]) -> str:
    if len(steps) == 1:
        return f"step {steps[0]}"
    if steps == list(range(steps[0], steps[-1] + 1)):
        return f"steps {steps[0]} to {steps[-1]}"
    return f"steps {', '.join(map(str, steps[:10]))}{' ...' if len(steps) > 10 else ''}"


def gpu(
    reel: Reel,
    step: int | None = None,
    device: str | None = None,
    gap_ns: int = GAP_NS,
    changes: Sequence[tuple[str, float]] = (),
    peak: Peak | None = None,
) -> Gpu:
    """What the devices of a reel did: of all of it, or of one step, or of one device.

    `gap_ns` is how long a stream may wait between two activities for that to count as back to back. `changes` are pairs
    of an expression and how many times faster what it finds becomes, for the table `what_if`: [("gemm", 2.0)]. `peak`
    is what the devices can do, for `roofline` and `mfu`, where their model is not known.
    """
    return Gpu(reel, step, device, gap_ns, changes, peak)
