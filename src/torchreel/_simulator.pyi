"""The typed face of the allocator's model. Needs neither torch nor a GPU.

Actions are numbers, in the order of `ACTIONS` in `torchreel.reel.allocator_history.actions`. Pools are indices, 0 is
the default one. Rules are the settings as a dict: see `torchreel.simulator.rules`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Rows = list[tuple[int, ...]] | Ints

def run_request_trace(
    rules: dict[str, Any],
    pools: dict[int, set[str]],
    actions: npt.NDArray[np.int8],
    handles: Ints,
    sizes: Ints,
    streams: Ints,
    pool_of: npt.NDArray[np.int32],
    traces: bool,
) -> dict[str, Any]:
    """Runs a request trace: the allocs and frees of a program. Releases the GIL.

    Gives stats, state (columns with one row per block), allocated_at_peak, first_oom (event, size, reserved) or None,
    and trace (columns with one row per event of a history) if it is asked for.
    """

def run_recorded(
    rules: dict[str, Any],
    pools: dict[int, set[str]],
    events: Rows,
    segments: Rows,
    blocks: Rows,
    mapped: Rows,
    ranks: list[int],
    learns: bool,
) -> dict[str, Any]:
    """Runs a recorded history again, from a start that is given, and holds it against itself. Releases the GIL.

    Rows: events are action, address, size, stream, pool (-1: unknown); segments are base, size, page (0: not
    expandable), stream, pool, small; blocks are address, size, requested, room, pending; mapped are address, size.
    Gives allocs and segment_events (matched, total, extra), peak_reserved, state, mismatch, and what was learned of the
    start: ties, slack, range_bytes, old_counters.
    """
