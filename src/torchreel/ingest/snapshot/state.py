"""The state of the allocators in a snapshot -> the tables segments and blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from torchreel.ingest.rows import Budget, Locate, Rows, as_list, matches
from torchreel.ingest.snapshot.stacks import Stacks

# torch's documentation says awaiting where its code says pending.
STATES = ("active_allocated", "active_pending_free", "active_awaiting_free", "inactive")
MAX_DEVICES = 1024
_FORWARD_CHARACTERS = 2**28

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class State:
    """The tables without the names of devices, which are numbers here."""

    segments: dict[str, pa.Array]
    blocks: dict[str, pa.Array]
    segment_device: Numbers
    block_device: Numbers

    def allocated(self) -> dict[int, int]:
        """The bytes that the program holds on each device: those that it asked for, where they are known."""
        asked = pc.coalesce(self.blocks["requested"], self.blocks["size"]).to_numpy()
        held = matches(self.blocks["state"], "active_allocated")
        sums = np.zeros(MAX_DEVICES, np.int64)
        np.add.at(sums, self.block_device[held], asked[held])
        return dict(enumerate(sums.tolist()))


def nested(lists: Sequence[Sequence[Any]], name: Locate) -> Locate:
    """Names a row of several lists that are read as one."""
    ends = np.cumsum([len(part) for part in lists]).tolist()

    def location(index: int) -> str:
        part = bisect_right(ends, index)
        return f"{name(part)}[{index - (ends[part - 1] if part else 0)}]"

    return location


def read_state(values: Sequence[Any], stacks: Stacks, budget: Budget) -> State:
    """Check and read all segments and their blocks."""
    budget.spend(len(values))
    segments = Rows(values, lambda index: f"segments[{index}]")
    lists = [as_list(v, f"segments[{i}].blocks") for i, v in enumerate(segments.values("blocks", required=True))]
    counts = np.array([len(part) for part in lists], np.int64)
    budget.spend(int(counts.sum()))
    blocks = Rows(list(chain.from_iterable(lists)), nested(lists, lambda index: f"segments[{index}].blocks"))

    device = segments.integers("device", "the number of a device", high=MAX_DEVICES - 1, required=False)
    segment_device = device.fill_null(0).to_numpy()
    address = segments.addresses("address").to_numpy()
    block_columns = _blocks(blocks, np.repeat(address, counts), counts, stacks)
    return State(
        _segments(segments, block_columns, counts, stacks),
        block_columns,
        segment_device,
        np.repeat(segment_device, counts),
    )


def _blocks(blocks: Rows, segment_address: Numbers, counts: Numbers, stacks: Stacks) -> dict[str, pa.Array]:
    size = blocks.sizes("size")
    histories = _histories(blocks)
    requested = blocks.sizes("requested_size", required=False)
    if histories is not None:
        requested = pc.coalesce(requested, histories.sizes("real_size", required=False))
    address = blocks.addresses("address", required=False)
    derived = segment_address + _offsets(size.to_numpy(), counts)
    frames = stacks.column(blocks)
    if histories is not None:
        frames = pc.coalesce(frames, stacks.column(histories))
    return {
        "address": pc.coalesce(address, pa.array(derived)),
        "size": size,
        "requested": requested,
        "state": blocks.texts("state", STATES),
        "stack": frames,
        "forward": forward_column(blocks),
    }


def _histories(blocks: Rows) -> Rows | None:
    """Of each block its last alloc, as torch 2.0 wrote it; blocks without one have an empty row."""
    if not blocks.has("history"):
        return None
    values = [() if value is None else value for value in blocks.values("history")]
    lists = [as_list(value, f"{blocks.location(index)}.history") for index, value in enumerate(values)]
    return Rows([part[0] if part else {} for part in lists], lambda index: f"{blocks.location(index)}.history[0]")


def _offsets(sizes: Numbers, counts: Numbers) -> Numbers:
    """Where each block begins in its segment, if it follows the one before it."""
    ends = np.cumsum(sizes)
    starts = ends - sizes
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)[: len(counts)]
    filled = counts > 0
    return starts - np.repeat(starts[firsts[filled]], counts[filled])


def _segments(segments: Rows, blocks: dict[str, pa.Array], counts: Numbers, stacks: Stacks) -> dict[str, pa.Array]:
    owner = np.repeat(np.arange(len(counts)), counts)
    size = blocks["size"].to_numpy()
    allocated = matches(blocks["state"], "active_allocated")
    active = ~matches(blocks["state"], "inactive")

    def given_or_summed(key: str, chosen: NDArray[Any]) -> pa.Array:
        sums = np.zeros(len(counts), np.int64)
        np.add.at(sums, owner[chosen], size[chosen])
        return pc.coalesce(segments.sizes(key, required=False), pa.array(sums))

    return {
        "address": segments.addresses("address"),
        "size": segments.sizes("total_size"),
        "allocated": given_or_summed("allocated_size", allocated),
        "active": given_or_summed("active_size", active),
        "requested": segments.sizes("requested_size", required=False),
        "stream": segments.integers("stream", "the handle of a stream", low=-(2**63), required=False),
        "type": segments.texts("segment_type", required=False),
        "pool": pool_column(segments, "segment_pool_id"),
        "expandable": segments.booleans("is_expandable"),
        "stack": stacks.column(segments),
        "forward": forward_column(segments),
    }


def pool_column(rows: Rows, key: str) -> pa.DictionaryArray:
    """The ids of memory pools, each two numbers."""

    def text(value: Any) -> str | None:
        if type(value) not in (list, tuple) or len(value) != 2:
            return None
        first, second = value
        if type(first) is not int or type(second) is not int or not (0 <= first < 2**64 and 0 <= second < 2**64):
            return None
        return f"{first},{second}"

    return rows.derived(key, text, "two numbers that name a memory pool")


def forward_column(rows: Rows) -> pa.DictionaryArray:
    """The stacks of forward calls: one line for each text of the list, with the line feeds inside it escaped."""

    characters = Budget(_FORWARD_CHARACTERS, "characters of forward_frames")

    def text(value: Any) -> str | None:
        if type(value) not in (list, tuple) or not all(type(line) is str for line in value):
            return None
        characters.spend(sum(map(len, value)))
        return "\n".join(line.replace("\\", "\\\\").replace("\n", "\\n") for line in value)

    return rows.derived("forward_frames", text, "a list of texts")
