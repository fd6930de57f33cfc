"""The busy time of devices against a count of nanoseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import torchreel
from torchreel.analyze import device_busy
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

START = 1_700_000_000_000_000_000


def reel_of(path: Path, kernels: list[tuple[str, int, int, int]]) -> torchreel.Reel:
    rows = [
        {"id": number, "device": device, "stream": stream, "name": "k", "start_ns": START + start, "dur_ns": length}
        for number, (device, stream, start, length) in enumerate(kernels)
    ]
    row = {"name": "host-1", "pid": 1, "start_ns": START, "end_ns": START + 1000, "complete": True, "lost_events": 0}
    path.mkdir()
    tables = {"processes": pa.Table.from_pylist([row])}
    if rows:
        tables["kernels"] = pa.Table.from_pylist(rows)
    write_process(path / "host-1", tables)
    write_meta(path, {"root": "host-1"})
    return torchreel.load(path)


@pytest.mark.parametrize("seed", range(6))
def test_time_that_kernels_share_is_counted_once(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    kernels = [
        (f"cuda:{random.integers(2)}", int(random.integers(3)), int(random.integers(900)), int(random.integers(80)))
        for _ in range(60)
    ]
    reel = reel_of(tmp_path / "run.reel", kernels)
    for within in (None, (200, 500)):
        expected = {}
        for device in ("cuda:0", "cuda:1"):
            own = [(start, start + length) for name, _, start, length in kernels if name == device and length]
            busy = {moment for begin, end in own for moment in range(begin, end)}
            low, high = within or (min(begin for begin, _ in own), max(end for _, end in own))
            expected[device] = (len({moment for moment in busy if low <= moment < high}), high - low)
        asked = None if within is None else (START + within[0], START + within[1])
        found = {row["device"]: (row["busy_ns"], row["wall_ns"]) for row in device_busy(reel, asked).to_pylist()}
        assert found == expected


def test_a_reel_without_kernels_has_no_devices(tmp_path: Path) -> None:
    assert device_busy(reel_of(tmp_path / "run.reel", [])).num_rows == 0
