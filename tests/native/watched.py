"""What a sanitizer watches, each in a Python of its own: real and damaged input for the decoder and the simulator."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa

from tests.ingest.snapshot.test_fuzz import fuzz
from tests.reel.damaged_spools import damage, read_damaged
from tests.simulator import native_run
from tests.simulator.random_programs import long_setting, long_steps, program
from tests.simulator.recorded.test_verify import count_nonsense
from torchreel import _decode


def spools(process: str, first: int, count: int) -> None:
    """The spool of a process: as it is, and damaged; all of it, and what begins within windows."""
    with tempfile.TemporaryDirectory() as directory:
        assert _decode_all(Path(process) / "spool") > 0
        _restrict(Path(process) / "spool", 0)
        read_damaged(Path(process), Path(directory), range(first, first + count))
        for seed in range(first, first + count):
            part = Path(directory, "restricted")
            damage(Path(process), part, seed)
            _restrict(part / "spool", seed)
            shutil.rmtree(part)


def _decode_all(spool: Path, *windows: tuple[int, int]) -> int:
    decoder = _decode.Spool(str(spool))
    if windows:
        decoder.restrict_to(list(windows), [(number, window[0]) for number, window in enumerate(windows)])
    rows = 0
    while (batches := decoder.next()) is not None:
        rows += sum(pa.record_batch(batch).num_rows for batch in batches.values())
    return rows + sum(pa.record_batch(batch).num_rows for batch in decoder.finish().values())


def _restrict(spool: Path, seed: int) -> None:
    chance = random.Random(seed)
    head = (spool / "events").read_bytes()[:96]
    start, end = (int.from_bytes(head[at : at + 8], "little") for at in (16, 48))
    ticks = sorted(chance.randrange(start, max(start, end) + 2) for _ in range(4))
    try:
        _decode_all(spool, (ticks[2], ticks[3]), (ticks[0], ticks[1]))
    except _decode.SpoolError as error:
        assert str(error)


def pickles(first: int, count: int) -> None:
    """Snapshots with bytes and values changed at random."""
    with tempfile.TemporaryDirectory() as directory:
        assert 0 < fuzz(Path(directory, "x"), count, first) < count


def programs(first: int, count: int) -> None:
    """Programs at random, and the histories that they leave: as they are, cut off, and full of nonsense."""
    for seed in range(first, first + count):
        setting = long_setting(seed)
        result = native_run.run(setting.rules(), setting.flags, program(long_steps(seed, 1000)))
        assert native_run.trace(result)
    count_nonsense(range(first, first + count))
