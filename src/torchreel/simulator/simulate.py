"""simulate: what the CUDA caching allocator would do with a program, under settings and on a device of one's choice."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from torchreel import _simulator
from torchreel.errors import OptionError
from torchreel.reel.sizes import parse_size
from torchreel.simulator.conf import Conf, parse
from torchreel.simulator.request_trace import RequestTrace
from torchreel.simulator.rules import MOST_BYTES, NEWEST, UNLIMITED, limit_of, native_rules, order_of, version_of
from torchreel.simulator.source import Source, request_traces

# Of these torch reads the first that is set.
_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_BY_POOL = "reserved_bytes_by_private_pools."
_STATES = ("inactive", "active_pending_free", "active_allocated")


@dataclass(frozen=True)
class OutOfMemory:
    """A request that could not be met."""

    event: int
    """The id of the event in the recording, or its place in the list; -1 for a block older than the history."""
    size: int
    reserved: int
    """What was reserved when all that could be released was."""


NUMBERS = (
    "peak_reserved",
    "peak_allocated",
    "peak_active",
    "peak_requested",
    "reserved_at_end",
    "allocated_at_end",
    "allocated_at_peak",
    "fragmentation",
    "retries",
    "ooms",
)


@dataclass(frozen=True)
class DeviceSimulation:
    """What one device's allocator would have done. Sizes are bytes."""

    device: str
    events: int
    peak_reserved: int
    peak_allocated: int
    peak_active: int
    """With the blocks that were freed while a stream still used them."""
    peak_requested: int
    reserved_at_end: int
    allocated_at_end: int
    allocated_at_peak: int
    """When the reserved memory was at its peak for the first time."""
    retries: int
    """How often all that was cached was given back because the device was full."""
    ooms: int
    first_oom: OutOfMemory | None
    stats: dict[str, int]
    """By their names in torch.cuda.memory_stats."""
    recorded_peak_reserved: int | None = None
    notes: tuple[str, ...] = ()
    state: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Columns with one row per block at the end."""
    trace: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    """What the allocator did, as columns, if it was asked for."""
    pools: tuple[tuple[int, int], ...] = ((0, 0),)

    def numbers(self) -> dict[str, int | float]:
        """What is compared with a recorded run, by name."""
        return {name: getattr(self, name) for name in NUMBERS}

    @property
    def fragmentation(self) -> float:
        """The part of the reserved memory that was not allocated when most was reserved."""
        return 1 - self.allocated_at_peak / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def segments(self) -> list[dict[str, Any]]:
        """The state at the end, as a memory snapshot has it."""
        segments: dict[int, dict[str, Any]] = {}
        names = ("segment", "address", "size", "requested", "stream", "pool", "state", "small", "expandable")
        columns = (self.state[name].tolist() for name in names)
        for base, address, size, requested, stream, pool, state, small, expandable in zip(*columns, strict=True):
            segment = segments.setdefault(
                base,
                {
                    "address": base,
                    "total_size": 0,
                    "allocated_size": 0,
                    "active_size": 0,
                    "requested_size": 0,
                    "stream": stream,
                    "segment_type": "small" if small else "large",
                    "segment_pool_id": self.pools[pool],
                    "is_expandable": bool(expandable),
                    "blocks": [],
                },
            )
            segment["total_size"] += size
            segment["allocated_size"] += size * (state == 2)
            segment["active_size"] += size * (state > 0)
            segment["requested_size"] += requested
            block = {"address": address, "size": size, "requested_size": requested, "state": _STATES[state]}
            segment["blocks"].append(block)
        return sorted(segments.values(), key=lambda segment: segment["address"])


@dataclass(frozen=True)
class Simulation:
    devices: dict[str, DeviceSimulation]


def simulate(
    events: Source,
    conf: str | Conf | None = None,
    capacity: int | str | None = None,
    torch_version: str | None = None,
    fraction: float | None = None,
    trace: bool = False,
    no_split: Collection[tuple[int, int]] = (),
) -> Simulation:
    """Run a program through the CUDA caching allocator.

    `events` is a memory snapshot or a reel (its path, or the Reel), or a list of events: dicts with the keys `action`,
    `addr`, `size`, `stream` and `pool`, or tuples in that order. The actions are

    - alloc: `size` bytes on the `stream` (0) from the `pool` ((0, 0), the default one). `addr` names the block: any
      value that can be a key, as long as no other block has it.
    - free: of the block `addr`. Or free_requested and, later, free_completed, for one that a stream still uses then.
    - empty_cache: torch.cuda.empty_cache().
    - release_pool: nobody uses the private `pool` any more.

    `conf` is a text as PYTORCH_CUDA_ALLOC_CONF, or a Conf; None is what the recording ran with, else PyTorch's default.
    The environment of this process is not the recorded one's: it is not used, and a note says so where it is set.
    `no_split` are the private pools, as pairs of numbers, that were made with MemPool(no_split=True), besides those of
    which the final state of a snapshot tells it.
    `capacity` is the memory that the allocator has (bytes, or a text such as "24GiB"; None: no limit), `fraction` the
    part of it that the process may use. `torch_version` is the one of the recording, else 2.13.

    On a history that begins mid-run, the blocks that lived at its start are allocated first, in the order of their
    addresses, into an empty allocator. The addresses of segments are made up, and only grow. A request that failed when
    it was recorded is made again; if it is met now, its block lives to the end. With `trace`, what the allocator did is
    kept in the result.
    """
    if isinstance(conf, str):
        conf = parse(conf)
    bytes_ = None if capacity is None else _capacity(capacity)
    if fraction is not None and not 0 <= fraction <= 1:
        raise OptionError(f"fraction={fraction!r} is not a part of a device's memory: give a number from 0 to 1.")
    version = None if torch_version is None else version_of(torch_version)
    found = request_traces(events).devices
    whole = _whole_pools(found, no_split)
    ignored = _ignored_environment() if conf is None else ()
    return Simulation(
        {
            name: _simulated(
                replace(requests, flags=whole[name], notes=(*requests.notes, *ignored)),
                conf or requests.conf,
                bytes_,
                version,
                fraction,
                trace,
            )
            for name, requests in found.items()
        }
    )


def _ignored_environment() -> tuple[str, ...]:
    """What is set for an allocator of this process."""
    return tuple(
        f"{name}={os.environ[name]} is set here and not used: give it as conf to try it"
        for name in _VARIABLES
        if os.environ.get(name)
    )


def _whole_pools(
    found: dict[str, RequestTrace], no_split: Collection[tuple[int, int]]
) -> dict[str, dict[int, set[str]]]:
    """The flags of each device's pools, with those whose blocks are never split."""
    known = {pool for requests in found.values() for pool in requests.pools[1:]}
    for pool in no_split:
        if pool not in known:
            has = ", ".join(map(str, sorted(known))) or "none"
            raise OptionError(f"no_split has {pool!r}, which is not a private pool of the program: it has {has}.")
    return {
        name: {
            index: requests.flags.get(index, set()) | ({"no_split"} if pool in no_split else set())
            for index, pool in enumerate(requests.pools)
        }
        for name, requests in found.items()
    }


def _capacity(capacity: int | str) -> int:
    size = parse_size(capacity)
    if size <= 0:
        raise OptionError(f"A device with {capacity!r} of memory can hold nothing: give a capacity such as 24GiB.")
    return min(size, MOST_BYTES)


def _simulated(
    requests: RequestTrace,
    conf: Conf,
    capacity: int | None,
    version: tuple[int, int] | None,
    fraction: float | None,
    trace: bool,
) -> DeviceSimulation:
    version = version or requests.torch_version or NEWEST
    total = capacity or requests.total
    limit = limit_of(total, _first(fraction, conf.per_process_memory_fraction, requests.fraction))
    rules = native_rules(
        conf,
        order_of(version),
        limit=limit,
        capacity=UNLIMITED if capacity is None else capacity,
        counts_ages=limit is not None and conf.garbage_collection_threshold > 0,
    )
    if total is not None:
        rules["range_bytes"] = total + total // 8
    flags = {index: _flags(requests, index, version) for index in range(1, len(requests.pools))}
    columns = (requests.actions, requests.handles, requests.sizes, requests.streams, requests.pool_of)
    result = _simulator.run_request_trace(rules, flags, *columns, trace)
    return _described(requests, conf, result)


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _flags(requests: RequestTrace, pool: int, version: tuple[int, int]) -> set[str]:
    """A request within a captured graph never releases what is cached; before 2.12, none of a private pool's did."""
    captured = version < (2, 12) or requests.pools[pool][0] != 0
    return requests.flags.get(pool, set()) | ({"capturing"} if captured else set())


def _with_pool_id(name: str, pools: list[tuple[int, int]]) -> str:
    """The name with a pool's id, as torch writes it, in place of its index."""
    if not name.startswith(_BY_POOL):
        return name
    index, rest = name.removeprefix(_BY_POOL).split(".", 1)
    first, second = pools[int(index)]
    return f"{_BY_POOL}{first}_{second}.{rest}"


def _described(requests: RequestTrace, conf: Conf, result: dict[str, Any]) -> DeviceSimulation:
    stats: dict[str, int] = result["stats"]
    stats = {_with_pool_id(name, requests.pools): value for name, value in stats.items()}
    stats["max_split_size"] = -1 if conf.max_split_size is None else conf.max_split_size
    oom = result["first_oom"]
    return DeviceSimulation(
        device=requests.device,
        events=requests.events,
        peak_reserved=stats["reserved_bytes.all.peak"],
        peak_allocated=stats["allocated_bytes.all.peak"],
        peak_active=stats["active_bytes.all.peak"],
        peak_requested=stats["requested_bytes.all.peak"],
        reserved_at_end=stats["reserved_bytes.all.current"],
        allocated_at_end=stats["allocated_bytes.all.current"],
        allocated_at_peak=result["allocated_at_peak"],
        retries=stats["num_alloc_retries"],
        ooms=stats["num_ooms"],
        first_oom=None if oom is None else OutOfMemory(int(requests.ids[oom[0]]), oom[1], oom[2]),
        stats=stats,
        recorded_peak_reserved=requests.recorded_peak,
        notes=requests.notes,
        state=result["state"],
        trace=result.get("trace"),
        pools=tuple(requests.pools),
    )
