"""All that is asked of a device's memory at once, as `torchreel memory` shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.memory.fragmentation import Fragmentation, fragmentation
from torchreel.analyze.memory.holders import holders
from torchreel.analyze.memory.leaks import Leaks, leaks
from torchreel.analyze.memory.model.device import DeviceMemory, device_memories
from torchreel.analyze.memory.model.phases import BACKWARD
from torchreel.analyze.memory.peak import Moment, Peaks, moment, peaks
from torchreel.analyze.memory.spikes import Spike, level_without_spikes, spikes
from torchreel.reel import Reel
from torchreel.reel.allocator_history import OLD, AllocatorHistory
from torchreel.reel.columns import NOTHING

COMPLETE, MID_RUN, NONE = "complete", "mid-run", "none"


@dataclass(frozen=True)
class Failure:
    """An alloc for which there was no memory, and what there was then."""

    bytes: int
    device_free: int | None
    allocated: int
    reserved: int
    line: str | None
    moment: Moment


@dataclass(frozen=True)
class MemoryReport:
    """The memory of one device in one process."""

    process: int
    process_name: str
    device: str
    history: str  # complete: begins with nothing allocated; mid-run; none: only the final state is known
    events: int
    allocs: int
    lost_events: int
    unknown_frees: int
    note: str | None
    duration_ns: int | None
    steps: int
    steps_source: str
    peak: Peaks | None  # None without a history
    final_allocated: int
    final_blocks: int
    held: int  # bytes that are held at the moment that `holders` and `categories` are of
    held_blocks: int
    older_blocks: int  # of these, those that are older than the history
    older_bytes: int
    has_stacks: bool
    has_backward: bool  # whether a backward pass was seen
    by: str
    holders: pa.Table  # at the peak of allocated memory, else at the end
    categories: pa.Table
    failures: tuple[Failure, ...]
    fragmentation: Fragmentation | None
    settings: dict[str, Any]
    leaks: Leaks | None
    spikes: tuple[Spike, ...]
    without_spikes: int  # bytes that the peak of allocated memory would be without them

    def as_dict(self, limit: int | None = None) -> dict[str, Any]:
        """Plain values, as `memory --format json` prints them; `limit` is of rows."""
        values: dict[str, Any] = {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("peak", "holders", "categories", "failures", "fragmentation", "leaks", "spikes")
        }
        values["peak"] = _peaks_dict(self.peak)
        values["holders"] = _rows(self.holders, limit)
        values["categories"] = _rows(self.categories.drop_columns(["categories"]), None)
        values["out_of_memory"] = [_flat(asdict(failure)) for failure in self.failures]
        values["fragmentation"] = _fragmentation_dict(self.fragmentation, limit)
        values["leaks"] = _leaks_dict(self.leaks, limit)
        values["spikes"] = [_spike_dict(spike) for spike in self.spikes[: limit or None]]
        return values


def _rows(table: pa.Table, limit: int | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (table.slice(0, limit) if limit else table).to_pylist()
    return rows


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """The moment's values beside the others."""
    at = values.pop("moment")
    return {**at, **values}


def _peaks_dict(found: Peaks | None) -> dict[str, Any] | None:
    if found is None:
        return None
    names = ("allocated", "active", "reserved")
    result: dict[str, Any] = {
        name: None if (peak := getattr(found, name)) is None else _flat(asdict(peak)) for name in names
    }
    result["allocated_at_peak_reserved"] = found.allocated_at_peak_reserved
    return result


def _fragmentation_dict(found: Fragmentation | None, limit: int | None) -> dict[str, Any] | None:
    if found is None:
        return None
    pools = {pool.name: {key: value for key, value in asdict(pool).items() if key != "name"} for pool in found.pools}
    return {
        **{key: value for key, value in asdict(found.total).items() if key != "name"},
        "expandable": found.expandable,
        "pools": pools,
        "pinned_segments": found.pinned_segments,
        "pins": _rows(found.pins, limit),
    }


def _leaks_dict(found: Leaks | None, limit: int | None) -> dict[str, Any] | None:
    if found is None:
        return None
    rows = _rows(found.growing, limit)
    return {"verdict": found.verdict, "steps": found.steps, "steps_source": found.source, "growing": rows}


def _spike_dict(spike: Spike) -> dict[str, Any]:
    values = _flat(asdict(spike))
    values["lines"] = [{"name": name, "bytes": size} for name, size in spike.lines]
    return values


def memory_reports(reel: Reel, by: str = "stack") -> list[MemoryReport]:
    """Every device of every process that has something; the greatest peak first."""
    return [memory_report(memory, by) for memory in device_memories(reel)]


def memory_report(memory: DeviceMemory, by: str = "stack") -> MemoryReport:
    """Ask every question of one device."""
    history = memory.history
    kind = _kind(history)
    known = kind != NONE
    position = int(history.allocated.argmax()) - 1 if known else history.events - 1
    held = history.alive(position)
    old = held[history.blocks.start[held] == OLD]
    final = history.alive(history.events - 1)
    return MemoryReport(
        process=history.process,
        process_name=history.process_name,
        device=history.device,
        history=kind,
        events=history.events,
        allocs=history.allocs,
        lost_events=history.lost_events,
        unknown_frees=history.unknown_frees,
        note=history.note,
        duration_ns=int(history.times[-1]) - history.start_ns if history.start_ns is not None else None,
        steps=len(memory.steps),
        steps_source=memory.steps.source,
        peak=peaks(memory) if known else None,
        final_allocated=int(history.blocks.size[final].sum()),
        final_blocks=len(final),
        held=int(history.blocks.size[held].sum()),
        held_blocks=len(held),
        older_blocks=len(old),
        older_bytes=int(history.blocks.size[old].sum()),
        has_stacks=bool((memory.run.stacks.rows(history.blocks.stack) != NOTHING).any()),
        has_backward=bool((memory.phases.phase == BACKWARD).any()),
        by=by,
        holders=holders(memory, by, position),
        categories=holders(memory, "category", position),
        failures=_failures(memory),
        fragmentation=fragmentation(memory),
        settings=memory.run.settings,
        leaks=leaks(memory) if known else None,
        spikes=tuple(spikes(memory)) if known else (),
        without_spikes=int(level_without_spikes(memory).max()) if known else 0,
    )


def _kind(history: AllocatorHistory) -> str:
    """A history of one event is what is left where only the state was to be recorded."""
    if history.allocs == 0 or (history.events <= 1 < history.final.num_rows):
        return NONE
    return MID_RUN if bool((history.blocks.start == OLD).any()) else COMPLETE


def _failures(memory: DeviceMemory) -> tuple[Failure, ...]:
    history, stacks = memory.history, memory.run.stacks
    found = []
    for oom in history.ooms:
        row = int(stacks.rows(np.array([oom.stack]))[0])
        line = stacks.line(row).text if row >= 0 else None
        at = moment(memory, oom.position)
        level = oom.position + 1
        reserved = int(history.reserved[level])
        found.append(Failure(oom.bytes, oom.device_free, int(history.allocated[level]), reserved, line, at))
    return tuple(found)
