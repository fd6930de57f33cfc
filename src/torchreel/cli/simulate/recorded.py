"""What a recording itself says of each device's allocator, to stand beside what is simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.reel import Reel
    from torchreel.reel.allocator_history import AllocatorHistory


@dataclass(frozen=True)
class Recorded:
    """One device of one process. Sizes are bytes; None where the recording does not tell."""

    process: int
    device: str
    peak_reserved: int | None
    peak_requested: int
    fragmentation: float | None  # the part of the reserved memory that held no tensor when most was reserved
    ooms: int
    room: int | None  # what the allocator had when a request failed, as far as it is known


def recorded(reel: Reel) -> list[Recorded]:
    """Every device of every process that has something."""
    from torchreel.reel.allocator_history import histories

    return [_recorded(history) for history in histories(reel)]


def _recorded(history: AllocatorHistory) -> Recorded:
    peak = fragmentation = None
    if history.reserves:
        index = int(history.reserved.argmax())
        peak = int(history.reserved[index])
        # The request for which it was reserved comes after it.
        held = int(history.allocated[index : index + 2].max())
        fragmentation = 1 - held / peak if peak > 0 else 0.0
    return Recorded(
        process=history.process,
        device=history.device,
        peak_reserved=peak,
        peak_requested=int(history.active.max()),
        fragmentation=fragmentation,
        ooms=len(history.ooms),
        room=_room(history),
    )


def _room(history: AllocatorHistory) -> int | None:
    """What was reserved, and what the device still had, at the first request that failed."""
    free = next(((oom.position, oom.device_free) for oom in history.ooms if oom.device_free is not None), None)
    return None if free is None or not history.reserves else int(history.reserved[free[0]]) + free[1]


def source_line(reel: Reel, process: int, event: int) -> str | None:
    """The line of the source that made an event, if its stack was recorded."""
    import pyarrow.compute as pc

    from torchreel.analyze.memory.model.stacks import stacks_of
    from torchreel.reel.columns import ints

    allocs = reel.table("allocs", ["id", "stack"])
    row = allocs.filter(pc.and_(pc.equal(allocs["process"], process), pc.equal(allocs["id"], event)))
    if row.num_rows != 1 or row["stack"][0].as_py() is None:
        return None
    stacks = stacks_of(reel, process)
    index = int(stacks.rows(ints(row, "stack"))[0])
    return stacks.line(index).text if 0 <= index < len(stacks) else None
