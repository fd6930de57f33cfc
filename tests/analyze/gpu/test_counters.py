"""Hardware counters by kernel, op and module, counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.analyze.gpu.by_hand import START, call, kernel, reel_of
from torchreel.analyze.gpu.counters import counters


def counted(name: str, value: float, start: int, **fields: Any) -> dict[str, Any]:
    return {"name": name, "value": value, "start_ns": START + start, "dur_ns": 5, **fields}


def test_counters_of_kernels(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "ops": [call(0, 9, "aten::mm", "op"), call(10, 19, "aten::mm", "op"), call(20, 29, "aten::add", "op")],
            "modules": [{"path": "Net", "class": "Net"}, {"path": "Net.fc", "class": "Linear", "parent": 0}],
            "kernels": [kernel(0, 5, op=0, module=1), kernel(10, 15, op=1, module=1), kernel(20, 25, op=2, module=0)],
            "kernel_counters": [
                counted("inst", 100.0, 0, kernel=0, range="k"),
                counted("inst", 20.0, 10, kernel=1, range="k"),
                counted("inst", 7.0, 20, kernel=2, range="k"),
                counted("hmma", 1.5, 20, kernel=2, range="k"),
            ],
        },
    )
    assert [tuple(row.values()) for row in counters(reel).to_pylist()] == [
        (0, "hmma", "k", "aten::add", "Net", 1, 1.5),
        (0, "inst", "k", "aten::mm", "Net.fc", 2, 120.0),
        (0, "inst", "k", "aten::add", "Net", 1, 7.0),
    ]


def test_the_k_th_range_is_the_k_th_launch(tmp_path: Path) -> None:
    ops = [
        call(0, 9, "aten::mm", "op"),
        call(1, 2, parent=0),
        call(10, 19, "aten::add", "op"),
        call(11, 12, parent=2),
    ]
    ranges = [counted("inst", 3.0, 1000, range="gemm"), counted("inst", 4.0, 2000, range="add")]
    same = reel_of(tmp_path / "same.reel", {"ops": ops, "kernel_counters": ranges})
    assert [tuple(row.values())[2:] for row in counters(same).to_pylist()] == [
        ("add", "aten::add", None, 1, 4.0),
        ("gemm", "aten::mm", None, 1, 3.0),
    ]
    other = reel_of(tmp_path / "other.reel", {"ops": ops, "kernel_counters": ranges[:1]})
    assert [row["op"] for row in counters(other).to_pylist()] == [None]
