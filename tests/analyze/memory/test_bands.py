"""Memory over time, against adding up the blocks of every moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.analyze.memory import simulated
from tests.analyze.memory.traces import Trace, user
from torchreel.analyze.memory import DeviceMemory, bands, blocks_in_view, changes
from torchreel.analyze.memory.bands import tops


def random_memory(path: Path, seed: int) -> DeviceMemory:
    """Blocks of seven lines that come and go, some older than the history."""
    random = np.random.default_rng(seed)
    trace = Trace()
    alive: list[int] = []
    for number in range(400):
        if random.random() < 0.55 or not alive:
            trace.alloc(1000 * number, int(random.integers(1, 900)), user(int(random.integers(7))))
            alive.append(1000 * number)
        else:
            trace.free(alive.pop(int(random.integers(len(alive)))), 0)
    for old in range(3):
        trace.block(10_000_000 + old, 77)
    return trace.memory(path)


def held(memory: DeviceMemory, position: int, by: str) -> dict[str, int]:
    blocks, labels = memory.history.blocks, memory.labels(by)
    found: dict[str, int] = {}
    for number in range(len(blocks)):
        if blocks.start[number] <= position < blocks.end[number]:
            name = labels.texts[int(labels.number[number])]
            found[name] = found.get(name, 0) + int(blocks.size[number])
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by", ["stack", "category"])
def test_bands_add_up_to_the_level(tmp_path: Path, seed: int, by: str) -> None:
    memory = random_memory(tmp_path, seed)
    level = memory.history.allocated
    edges = np.linspace(0, memory.history.events, 38).astype(np.int64)
    positions = tops(level, edges)
    for cell, (a, b) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        assert level[positions[cell] + 1] == level[a : b + 1].max()
    for most in (1, 3, 100):
        found = bands(memory, by, positions, most)
        assert (found.bytes.sum(axis=0) + found.rest == level[positions + 1]).all()
        assert len(found.names) + found.others == len(set().union(*(held(memory, int(p), by) for p in positions)))
        for cell, position in enumerate(positions.tolist()):
            truth = held(memory, position, by)
            assert [truth.get(name, 0) for name in found.names] == found.bytes[:, cell].tolist()


@pytest.mark.parametrize("most", [1, 20, 10_000])
def test_the_largest_blocks_are_shown_with_their_cells(tmp_path: Path, most: int) -> None:
    memory, _ = simulated.write(tmp_path, 2, count=200)
    blocks = memory.history.blocks
    positions = tops(memory.history.allocated, np.linspace(50, 250, 31).astype(np.int64))
    found = blocks_in_view(memory, positions, most)
    in_view = [n for n in range(len(blocks)) if any(blocks.start[n] <= p < blocks.end[n] for p in positions)]
    assert len(found.block) == min(most, len(in_view)) and len(found.block) + found.others == len(in_view)
    rest = sorted((int(blocks.size[n]) for n in set(in_view) - set(found.block.tolist())), reverse=True)
    assert not rest or rest[0] <= blocks.size[found.block].min()
    for cell, position in enumerate(positions.tolist()):
        here = (found.first <= cell) & (cell < found.last)
        alive = (blocks.start[found.block] <= position) & (position < blocks.end[found.block])
        assert (here == alive).all()
        total = blocks.size[found.block][here].sum() + found.rest[cell]
        assert total == memory.history.allocated[position + 1]
    assert (np.diff(blocks.start[found.block]) >= 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_changes_between_two_moments(tmp_path: Path, seed: int) -> None:
    memory = random_memory(tmp_path, seed)
    blocks, labels = memory.history.blocks, memory.labels("stack")
    for first, last in ((-1, 50), (30, 200), (100, 100), (0, memory.history.events - 1)):
        rows = {row["name"]: row for row in changes(memory, "stack", first, last).to_pylist()}
        before, after = held(memory, first, "stack"), held(memory, last, "stack")
        made: dict[str, list[int]] = {}
        freed: dict[str, list[int]] = {}
        for number in range(len(blocks)):
            name = labels.texts[int(labels.number[number])]
            if first < blocks.start[number] <= last:
                made.setdefault(name, []).append(int(blocks.size[number]))
            if first < blocks.end[number] <= last:
                freed.setdefault(name, []).append(int(blocks.size[number]))
        assert set(rows) == set(made) | set(freed)
        for name, row in rows.items():
            assert (row["before"], row["after"]) == (before.get(name, 0), after.get(name, 0))
            assert row["change"] == row["after"] - row["before"] == row["made_bytes"] - row["freed_bytes"]
            assert (row["made"], row["made_bytes"]) == (len(made.get(name, [])), sum(made.get(name, [])))
            assert (row["freed"], row["freed_bytes"]) == (len(freed.get(name, [])), sum(freed.get(name, [])))
