"""Predict: what a GPU would reserve for a program that was recorded on the CPU.

The recorded allocs go, in their order and as one stream, through the simulator of the CUDA caching allocator, twice:
with the least and with the most of what only a GPU allocates (gpu_only). What lies between is the prediction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torchreel._units import bytes_text
from torchreel.errors import OptionError
from torchreel.reel import Reel, load
from torchreel.reel.allocator_history.actions import ALLOC, FREE
from torchreel.reel.sizes import parse_size
from torchreel.simulator.predict.cpu_run import CpuRun
from torchreel.simulator.predict.gpu_only import GpuOnly, Rule, rules
from torchreel.simulator.predict.gpu_sizes import resizings
from torchreel.simulator.predict.unknown import unknown_in
from torchreel.simulator.request_trace import Columns, RequestTrace, RequestTraces
from torchreel.simulator.rules import MOST_BYTES, NEWEST, version_of
from torchreel.simulator.simulate import DeviceSimulation, simulate

if TYPE_CHECKING:
    import os

    from torchreel.simulator.conf import Conf

MIB = 1 << 20

# What the driver, the kernels of torch and its libraries take outside of the allocator: usual sizes, not counted.
CONTEXT = (256 * MIB, 1536 * MIB)


class Range(NamedTuple):
    """Bytes, at least and at most."""

    low: int
    high: int


@dataclass(frozen=True)
class _Candidates:
    """The two request traces between which the GPU's lies, and the settings that they run with."""

    low: RequestTraces
    high: RequestTraces
    conf: str | Conf | None
    torch_version: str

    def run(self, candidate: RequestTraces, capacity: int | None = None) -> DeviceSimulation:
        if capacity is not None:
            capacity = max(1, capacity)  # a device that is full before the program begins
        simulation = simulate(candidate, conf=self.conf, capacity=capacity, torch_version=self.torch_version)
        return next(iter(simulation.devices.values()))


@dataclass(frozen=True)
class Prediction:
    """What a GPU would reserve and allocate at most at once, for the process that needs most of it."""

    peak_reserved: Range
    peak_allocated: Range
    gpu_only: tuple[GpuOnly, ...]
    unknown: tuple[str, ...]
    torch_version: str
    capacity: int | None
    _candidates: _Candidates = field(repr=False, compare=False)

    def fits(self, capacity: int | str | None = None) -> Literal["yes", "no", "maybe"]:
        """Whether it runs on a GPU with so much memory, of which the CUDA context takes its part.

        Cached memory counts as free where the allocator would give it back before it gives up.
        """
        total = self.capacity if capacity is None else parse_size(capacity)
        if total is None:
            raise OptionError("fits() needs the memory of the GPU: give it as in fits('24GiB').")
        least, most = CONTEXT
        if not self._candidates.run(self._candidates.high, total - most).ooms:
            return "yes"
        return "no" if self._candidates.run(self._candidates.low, total - least).ooms else "maybe"

    def to_json(self) -> dict[str, Any]:
        """For programs: the numbers and sentences as they stand, sizes in bytes."""
        values: dict[str, Any] = {
            "peak_reserved": self.peak_reserved._asdict(),
            "peak_allocated": self.peak_allocated._asdict(),
            "gpu_only": [
                {"name": item.name, "low": item.low, "high": item.high, "why": item.why} for item in self.gpu_only
            ],
            "not_counted": {"cuda_context": Range(*CONTEXT)._asdict()},
            "unknown": list(self.unknown),
            "torch_version": self.torch_version,
        }
        if self.capacity is not None:
            values |= {"capacity": self.capacity, "fits": self.fits()}
        return values

    def describe(self) -> str:
        """For people: lines of text."""
        lines = [
            f"A GPU with torch {self.torch_version} would reserve {_between(self.peak_reserved)} at its peak,",
            f"and hold {_between(self.peak_allocated)} of tensors.",
        ]
        if self.gpu_only:
            lines.append("Of that, what the CPU does not allocate:")
            lines.extend(f"  {item.name}, {_between(item)}: {item.why}." for item in self.gpu_only)
        lines.append(f"Not counted: the CUDA context and libraries, usually {_between(Range(*CONTEXT))}.")
        if self.capacity is not None:
            lines.append(_VERDICTS[self.fits()].format(capacity=_size(self.capacity)))
        if self.unknown:
            lines.append("Not known:")
            lines.extend(f"  {sentence}" for sentence in self.unknown)
        return "\n".join(lines)


_VERDICTS = {
    "yes": "It fits into {capacity}.",
    "no": "It does not fit into {capacity}.",
    "maybe": "It may fit into {capacity}: that depends on what is not known.",
}


def predict(
    reel: Reel | str | os.PathLike[str],
    capacity: int | str | None = None,
    conf: str | Conf | None = None,
    torch_version: str | None = None,
) -> Prediction:
    """What a GPU would reserve for the program of a reel that was recorded on the CPU with its memory.

    `capacity` is the GPU's memory (bytes, or text such as "24GiB"), `conf` the PYTORCH_CUDA_ALLOC_CONF and
    `torch_version` the torch that it would run with, else the one that was recorded.
    """
    reel = reel if isinstance(reel, Reel) else load(Path(reel))
    total = None if capacity is None else parse_size(capacity)
    with CpuRun(reel) as run:
        return _predicted(run, total, conf, torch_version)


def _predicted(run: CpuRun, capacity: int | None, conf: str | Conf | None, torch_version: str | None) -> Prediction:
    recorded = torch_version or run.header.get("torch_version")
    version = version_of(recorded) if recorded else NEWEST
    applied = rules(run, version)
    resized = resizings(run)
    sizes = {event: pair for resizing in resized for event, pair in resizing.sizes.items()}
    candidates = _Candidates(
        _request_trace(run, applied, sizes, largest=False),
        _request_trace(run, applied, sizes, largest=True),
        conf,
        f"{version[0]}.{version[1]}",
    )
    low, high = candidates.run(candidates.low), candidates.run(candidates.high)
    items = [*(rule.item() for rule in applied), *(resizing.item(run) for resizing in resized)]
    return Prediction(
        # An allocator may need less for a program that allocates more: what it cuts up decides.
        peak_reserved=Range(*sorted((low.peak_reserved, high.peak_reserved))),
        peak_allocated=Range(*sorted((low.peak_allocated, high.peak_allocated))),
        gpu_only=tuple(items),
        unknown=tuple(unknown_in(run)),
        torch_version=candidates.torch_version,
        capacity=capacity,
        _candidates=candidates,
    )


def _request_trace(run: CpuRun, applied: list[Rule], sizes: dict[int, tuple[int, int]], largest: bool) -> RequestTraces:
    """The recorded events with all additions at their places, in the smallest or the largest size."""
    added = _added(applied, largest)
    columns = Columns()
    handles = itertools.count()
    live: dict[int, int] = {}
    for index in range(len(run.made) + 1):
        if index in added:
            _add(columns, added[index], handles, index)
        if index == len(run.made):
            break
        block, size = int(run.blocks[index]), run.sizes[index]
        if not run.made[index]:
            if block in live:
                columns.add(FREE, live.pop(block), 0, 0, 0, index)
        elif size is not None and size > 0 and block not in live:
            live[block] = next(handles)
            size = sizes[index][largest] if index in sizes else size
            columns.add(ALLOC, live[block], min(size, MOST_BYTES), 0, 0, index)
    return RequestTraces({"cuda:0": RequestTrace("cuda:0", **columns.arrays())})


def _added(applied: list[Rule], largest: bool) -> dict[int, list[tuple[int, bool]]]:
    """By their places, the sizes that are added, and whether they stay."""
    by_index: dict[int, list[tuple[int, bool]]] = {}
    for rule in applied:
        for addition in rule.additions:
            pieces = [(piece[largest], addition.stays) for piece in addition.pieces if piece[largest] > 0]
            by_index.setdefault(addition.index, []).extend(pieces)
    return by_index


def _add(columns: Columns, pieces: list[tuple[int, bool]], handles: Iterator[int], index: int) -> None:
    passing = []
    for size, stays in pieces:
        handle = next(handles)
        columns.add(ALLOC, handle, min(size, MOST_BYTES), 0, 0, index)
        if not stays:
            passing.append(handle)
    for handle in passing:
        columns.add(FREE, handle, 0, 0, 0, index)


def _between(range: Range | GpuOnly) -> str:
    if range.low == range.high:
        return _size(range.low)
    return f"{_size(range.low)} to {_size(range.high)}"


def _size(size: int) -> str:
    return f"{bytes_text(-size)} less" if size < 0 else bytes_text(size)
