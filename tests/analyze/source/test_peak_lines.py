"""Which lines' blocks lived at the peak."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.memory.traces import SITE, Trace, user
from torchreel.analyze.source.peak_lines import peak_lines
from torchreel.reel import load

LIBRARY = (f"{SITE}/some_library/layer.py", 7, "forward")


def test_blocks_of_the_peak_by_line(tmp_path: Path) -> None:
    trace = Trace()
    trace.alloc(1, 100, user(3))
    trace.alloc(2, 40, LIBRARY, user(5))
    trace.alloc(3, 20, user(3))
    trace.free(1, 100)
    trace.alloc(4, 10, user(9))
    found = peak_lines(load(trace.write(tmp_path / "run.reel")))
    rows = {(row["path"], row["line"]): (row["device"], row["bytes"], row["blocks"]) for row in found.to_pylist()}
    assert rows == {
        ("/home/user/train.py", 3): ("cuda:0", 120, 2),
        ("/home/user/train.py", 5): ("cuda:0", 40, 1),
        (LIBRARY[0], 7): ("cuda:0", 40, 1),
    }
    assert found["bytes"].to_pylist() == [120, 40, 40]


def test_a_reel_without_memory_has_none(tmp_path: Path) -> None:
    assert peak_lines(load(Trace().write(tmp_path / "run.reel"))).num_rows == 0
