"""The start of a history, rebuilt from its end, against what it was."""

from __future__ import annotations

import random

import pytest

from tests.simulator import native_run, random_programs, random_snapshots
from torchreel.ingest import tables_of
from torchreel.simulator.recorded.recorded_history import recorded_histories_of
from torchreel.simulator.recorded.start import rebuild


@pytest.mark.parametrize("seed", range(80))
def test_a_rebuilt_start_holds_what_lived(seed: int) -> None:
    setting = random_programs.long_setting(seed)
    events = random_programs.program(random_programs.knowable(setting, random_programs.long_steps(seed, 300)))
    before = random.Random(seed).randrange(len(events))
    truth = native_run.run(setting.rules(), setting.flags, events[:before])
    recorded = random_snapshots.snapshot_of(setting, events, cut=len(truth["trace"]["action"]))
    history = recorded_histories_of(tables_of(recorded))
    start = rebuild(history[0])[0] if history else None

    lived = {address: (size, word) for address, size, _, word, _ in native_run.state(truth) if word != "free"}
    rebuilt = {block.address: block for block in start.blocks} if start else {}
    assert set(rebuilt) == set(lived)
    for address, (size, word) in lived.items():
        block = rebuilt[address]
        # Up to 1 MiB of a large block may lie behind what was asked for, and nothing tells.
        assert block.size <= size <= block.size + block.room
        assert block.pending == (word == "pending")
    if start:
        assert start.reserved == truth["stats"]["reserved_bytes.all.current"]
        assert start.is_empty == (not lived and not start.reserved)


def test_most_sizes_of_blocks_are_found_exactly() -> None:
    exact = total = 0
    for seed in range(40):
        _, snapshot = random_snapshots.random_snapshot(seed, cuts=True)
        for history in recorded_histories_of(tables_of(snapshot)):
            blocks = rebuild(history)[0].blocks
            exact += sum(not block.room for block in blocks)
            total += len(blocks)
    assert (exact, total) == (1162, 1223)
