"""The tree of modules: sums against walking each call, and against the report's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import torchreel
from tests.synthetic import START, Call, Process, call, write_reel
from torchreel.analyze import averages
from torchreel.analyze.time.module_tree import NO_MODULE, module_tree
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

MODULES = (None, "Net", "Net.a", "Net.a.b", "Net.c", "Other")


def random_calls(random: np.random.Generator, depth: int) -> list[Call]:
    return [
        call(
            f"call {int(random.integers(4))}",
            int(random.integers(1, 100)),
            *(random_calls(random, depth - 1) if depth and random.random() < 0.7 else ()),
            flops=int(random.integers(1, 9)) if random.random() < 0.2 else None,
            bytes=int(random.integers(-5, 9)),
            module=MODULES[int(random.integers(len(MODULES)))],
            kind=("op", "op", "backward", "module")[int(random.integers(4))],
        )
        for _ in range(int(random.integers(2, 5)))
    ]


def walk(calls: list[Call], rows: list[dict[str, Any]], start: int = 0, backward: bool = False) -> None:
    for item in calls:
        inside = backward or item.kind == "backward"
        rows.append({"start": start, "call": item, "backward": inside, "module": item.module or NO_MODULE})
        walk(list(item.children), rows, start, inside)
        start += item.dur_ns


def expected(rows: list[dict[str, Any]], paths: list[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for path in paths:
        own = [row for row in rows if row["module"] == path]
        whole = [row for row in rows if row["module"] == path or row["module"].startswith(f"{path}.")]
        flops = [row["call"].flops for row in whole if row["call"].flops is not None]
        found[path] = {
            "calls": sum(row["call"].kind == "module" or path == NO_MODULE for row in own),
            "self_ns": sum(row["call"].self_ns for row in own),
            "total_ns": sum(row["call"].self_ns for row in whole),
            "self_backward_ns": sum(row["call"].self_ns for row in own if row["backward"]),
            "backward_ns": sum(row["call"].self_ns for row in whole if row["backward"]),
            "flops": sum(flops) if flops else None,
            "alloc_bytes": sum(max(row["call"].bytes or 0, 0) for row in whole),
        }
    return found


@pytest.mark.parametrize("seed", range(3))
def test_each_module_is_the_sum_of_its_calls(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    processes = [
        Process({f"thread {n}": random_calls(random, 3) for n in range(2)}, name=f"host-{pid}", pid=pid, first_id=pid)
        for pid in (1, 2)
    ]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", *processes))
    rows: list[dict[str, Any]] = []
    for process in processes:
        for calls in process.threads.values():
            walk(list(calls), rows)
    last = max(row["start"] for row in rows)
    for begin, end in ((0, 1 << 40), (last // 3, last // 2), (last + 1, last + 2)):
        inside = [row for row in rows if begin <= row["start"] < end]
        table = module_tree(reel, (START + begin, START + end)).to_pylist()
        paths = [row["path"] for row in table]
        assert {row["module"] for row in inside} <= set(paths)
        shown = {row.pop("path"): {key: row[key] for key in row if key not in ("class", "parent")} for row in table}
        assert {path: row for path, row in shown.items() if any(row.values())} == {
            path: row for path, row in expected(inside, paths).items() if any(row.values())
        }
    whole = module_tree(reel).to_pylist()
    assert sum(row["total_ns"] for row in whole if row["parent"] is None) == sum(row["call"].self_ns for row in rows)


def test_own_times_are_those_of_the_report(tmp_path: Path) -> None:
    calls = random_calls(np.random.default_rng(5), 4)
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    report = {row["module"]: (row["calls"], row["self_ns"]) for row in averages(reel, "module").to_pylist()}
    tree = {row["path"]: (row["calls"], row["self_ns"]) for row in module_tree(reel).to_pylist()}
    assert {path: tree[path] for path in report} == report
    assert all(tree[path] == (0, 0) for path in tree.keys() - report.keys())


def test_holders_come_before_what_they_hold(tmp_path: Path) -> None:
    calls = [call("x", 1, module="Net.b.c"), call("x", 1, module="Net.a"), call("x", 1)]
    rows = module_tree(torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))).to_pylist()
    assert [(row["path"], row["parent"]) for row in rows] == [
        ("Net", None),
        ("Net.b", "Net"),
        ("Net.b.c", "Net.b"),
        ("Net.a", "Net"),
        (NO_MODULE, None),
    ]


def test_modules_that_hold_each_other_lose_nothing(tmp_path: Path) -> None:
    """A damaged table must neither hang nor hide time."""
    process = Process({"main": [call("x", 3, module="A"), call("y", 4, module="B")]})
    tables = process.tables()
    modules = tables["modules"].to_pylist()
    modules[0]["parent"], modules[1]["parent"] = modules[1]["id"], modules[0]["id"]
    path = tmp_path / "run.reel"
    write_process(path / process.name, {**tables, "modules": pa.Table.from_pylist(modules)})
    write_meta(path, {"root": process.name})
    rows = module_tree(torchreel.load(path)).to_pylist()
    assert sum(row["self_ns"] for row in rows) == 7
    assert sum(row["total_ns"] for row in rows if row["parent"] is None) == 7


def test_a_reel_without_modules_has_one_row_and_an_empty_one_none(tmp_path: Path) -> None:
    plain = torchreel.load(write_reel(tmp_path / "plain.reel", Process({"main": [call("x", 3)]})))
    assert [(row["path"], row["calls"], row["total_ns"]) for row in module_tree(plain).to_pylist()] == [
        (NO_MODULE, 1, 3)
    ]
    empty = torchreel.load(write_reel(tmp_path / "empty.reel", Process({})))
    assert module_tree(empty).num_rows == 0
