"""The columns of calls, read back and compared with the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from tests.web.html.test_planes import read
from torchreel.web.html.calls import Calls
from torchreel.web.viewed_reel import ViewedReel


def signed(value: int) -> int:
    return -(value + 1) // 2 if value % 2 else value // 2


def read_back(calls: Calls, chosen: Any) -> list[dict[str, Any]]:
    """The chosen calls with all that is written of them, as the page reads them."""
    count = int(chosen.sum())
    timeline = read(calls.timeline(chosen), count)
    planes, texts = calls.details(chosen)
    details = read(planes, count)
    rows: list[dict[str, Any]] = []
    at = 0
    for lane, length in zip(calls.viewed.lanes, calls.lengths_of(chosen).tolist(), strict=True):
        end = number = 0
        for _ in range(length):
            start = end + signed(timeline["gap"][at])
            end = start + timeline["dur"][at]
            number += signed(timeline["id"][at])
            row: dict[str, Any] = {"process": lane.process, "thread": lane.thread, "id": number, "start": start}
            row |= {"dur": timeline["dur"][at], "label": timeline["label"][at], "async": lane.is_async}
            row["self"] = signed(details["self"][at])
            for name in ("parent", "fwd", "step", "flops", "alloc_bytes", "self_alloc_bytes"):
                value = details[name][at]
                row[name] = None if value == 0 else signed(value - 1)
                if name in ("parent", "fwd") and row[name] is not None:
                    row[name] = number - row[name]
            for name in ("module", "inputs", "stack"):
                value = details[name][at]
                row[name] = None if value == 0 else texts[name][value - 1]
            row["frames"] = [texts["frames"][frame] for frame in row["stack"] or ()]
            rows.append(row)
            at += 1
    inner: dict[tuple[int, int], int] = {}
    for row in rows:
        if row["parent"] is not None and not row["async"]:
            key = (row["process"], row["parent"])
            inner[key] = inner.get(key, 0) + row["dur"]
    for row in rows:
        row["self"] += 0 if row["async"] else row["dur"] - inner.get((row["process"], row["id"]), 0)
    return rows


def expected(viewed: ViewedReel) -> dict[tuple[int, int], dict[str, Any]]:
    query = """
        SELECT o.*, m.path, m.class AS module_class, i.dims, i.dtypes,
            [f.file || ':' || f.line FOR f IN s.list] AS lines
        FROM ops AS o LEFT JOIN modules AS m ON m.process = o.process AND m.id = o.module
        LEFT JOIN inputs AS i ON i.process = o.process AND i.id = o.inputs
        LEFT JOIN (
            SELECT process, id, list(row) AS list FROM (
                SELECT s.process, s.id, f AS row FROM
                (SELECT process, id, unnest(frames) AS frame, generate_subscripts(frames, 1) AS place FROM stacks) AS s
                JOIN frames AS f ON f.process = s.process AND f.id = s.frame ORDER BY s.process, s.id, s.place
            ) GROUP BY ALL
        ) AS s ON s.process = o.process AND s.id = o.stack"""
    return {(row["process"], row["id"]): row for row in viewed.reel.sql(query).to_pylist()}


def check(viewed: ViewedReel, rows: list[dict[str, Any]]) -> None:
    wanted = expected(viewed)
    labels = list(viewed.labels)
    for row in rows:
        found = wanted[row["process"], row["id"]]
        assert labels[row["label"]][:2] == (found["name"], found["kind"])
        assert (row["start"], row["dur"]) == (found["start_ns"] - viewed.origin, found["dur_ns"])
        assert row["self"] == found["self_ns"]
        for name in ("thread", "parent", "fwd", "step", "flops", "alloc_bytes", "self_alloc_bytes"):
            assert row[name] == found[name], name
        assert (row["module"] or [None, None]) == [found["path"], found["module_class"]]
        assert (row["inputs"] or [None, None]) == [found["dims"], found["dtypes"]]
        assert [f"{file}:{line}" for file, line, _ in row["frames"]] == (found["lines"] or [])


def test_all_calls_of_a_real_reel(trained: Path) -> None:
    viewed = ViewedReel(torchreel.load(trained))
    calls = Calls.read(viewed)
    rows = read_back(calls, np.ones(len(calls), bool))
    assert len(rows) == viewed.reel.table("ops", ["id"]).num_rows
    check(viewed, rows)
    totals = calls.totals()
    for number, (name, kind, _) in enumerate(viewed.labels):
        own = [row for row in rows if row["label"] == number]
        assert totals[number] == [len(own), sum(row["self"] for row in own)], (name, kind)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5])
def test_any_choice_of_calls_tells_the_truth_of_each(trained: Path, part: float) -> None:
    viewed = ViewedReel(torchreel.load(trained))
    calls = Calls.read(viewed)
    chosen = np.random.default_rng(1).random(len(calls)) < part
    rows = read_back(calls, chosen)
    assert len(rows) == int(chosen.sum())
    check(viewed, rows)


def test_several_processes_and_asynchronous_calls(tmp_path: Path) -> None:
    """Ids, modules, inputs and stacks of processes are their own; asynchronous calls overlap, and have no self time."""
    stacks = [((f"/home/{name}.py", 3, "f"),) for name in "ab"]
    processes = [
        Process(
            {
                "main": [
                    call("a", 10, call("b", 5, module=f"m{n}", stack=stacks[n]), inputs=f"[[{n}]]", flops=7 * n),
                    call("c", 50, asynchronous=True, bytes=-4),
                    call("a", 10, call("b", 5)),
                ]
            },
            name=f"host-{n + 1}",
            pid=n + 1,
            first_id=n,
        )
        for n in range(2)
    ]
    viewed = ViewedReel(torchreel.load(write_reel(tmp_path / "run.reel", *processes)))
    calls = Calls.read(viewed)
    rows = read_back(calls, np.ones(len(calls), bool))
    assert len(rows) == 10 and sum(row["async"] for row in rows) == 2
    check(viewed, rows)
