"""Lanes against brute force: which calls a view shows, how many, how busy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchreel
from tests.synthetic import START, Call, Process, call, write_reel
from torchreel.web.calls import Labels
from torchreel.web.hidden_kinds import without_kinds
from torchreel.web.lane_set import LaneSet
from torchreel.web.lanes import Lane


def lanes_of(reel: torchreel.Reel) -> tuple[list[Lane], Labels]:
    lanes = LaneSet(START)
    return lanes.lanes_of(reel), lanes.labels


def random_lane(tmp_path: Path, random: np.random.Generator, calls: int) -> Lane:
    """One lane of calls with gaps between them: ranges around them make the gaps."""
    items = []
    for number in range(calls):
        items.append(call(f"call {number % 7}", int(random.integers(0, 2_000))))
        items.append(call("gap", int(random.integers(0, 500)), kind="range"))
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": items})))
    lanes, _ = lanes_of(reel)
    return lanes[0]


def brute_force(lane: Lane, begin: int, step: int, width: int) -> dict[int, tuple[int, int, int]]:
    """For each pixel in which a call begins: how many begin, the longest duration, how many busy nanoseconds."""
    found: dict[int, tuple[int, int, int]] = {}
    starts = lane.starts
    ends = starts + np.diff(lane.sums)
    for pixel in range(width):
        low, high = begin + pixel * step, begin + (pixel + 1) * step
        inside = (starts >= low) & (starts < high)
        if inside.any():
            busy = int(np.maximum(np.minimum(ends, high) - np.maximum(starts, low), 0).sum())
            found[pixel] = (int(inside.sum()), int((ends - starts)[inside].max()), busy)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_view_is_exact_for_any_grid(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    lane = random_lane(tmp_path, random, 400)
    end = int(lane.starts[-1] + lane.durations(len(lane) - 1))
    for _ in range(40):
        step = int(2 ** random.integers(0, 16))
        width = int(random.integers(1, 200))
        begin = int(random.integers(0, end))
        marks = lane.marks(begin, step, width)
        expected = brute_force(lane, begin, step, width)
        if marks is None:
            assert not expected
            continue
        starts = lane.starts[marks.at]
        here = starts >= begin
        if int(marks.counts[here].sum()) == here.sum() and len(marks.at) <= width:  # call by call
            assert here.sum() == sum(count for count, _, _ in expected.values())
            continue
        pixels = (starts[here] - begin) // step
        assert list(pixels) == list(expected)
        for pixel, at, count, cover in zip(pixels, marks.at[here], marks.counts[here], marks.cover[here], strict=True):
            calls, longest, busy = expected[int(pixel)]
            assert (int(count), int(lane.durations(at))) == (calls, longest)
            assert int(cover) == min(max(busy * 255 // step, 1), 255)


def test_a_call_that_is_open_when_the_view_begins_is_shown(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": [call("long", 1_000), call("next", 10)]})))
    lane = lanes_of(reel)[0][0]
    marks = lane.marks(500, 1, 100)
    assert marks is not None and list(lane.ids[marks.at]) == [0]
    assert [lane.beginning(moment) for moment in (-1, 0, 999, 1_000, 9_999)] == [-1, 0, 0, 1, 1]
    assert lane.marks(5_000, 1, 10) is None


def test_depths_and_threads_have_lanes_of_their_own(tmp_path: Path) -> None:
    process = Process({"main": [call("outer", 5, call("inner", 7))], "worker": [call("other", 3)]})
    lanes, labels = lanes_of(torchreel.load(write_reel(tmp_path / "run.reel", process)))
    assert [(lane.thread, lane.depth, list(lane.ids)) for lane in lanes] == [(0, 0, [0]), (0, 1, [1]), (1, 0, [2])]
    assert list(labels) == [("outer", "op", ""), ("inner", "op", ""), ("other", "op", "")]


def test_calls_of_modules_are_told_apart(trained: Path) -> None:
    reel = torchreel.load(trained)
    lanes, labels = lanes_of(reel)
    paths = {(row["process"], row["id"]): row["path"] for row in reel.table("modules").to_pylist()}
    ops = {(row["process"], row["id"]): row for row in reel.table("ops").to_pylist()}
    found = {labels[label] for lane in lanes for label in lane.labels.tolist()}
    assert {("nn.Module: Linear", "module", "Sequential.0"), ("nn.Module: ReLU", "module", "Sequential.1")} <= found
    for lane in lanes:
        for number, label in zip(lane.ids.tolist(), lane.labels.tolist(), strict=True):
            name, kind, module = labels[label]
            row = ops[lane.process, number]
            assert (name, kind) == (row["name"], row["kind"])
            expected = paths.get((lane.process, row["module"]), "") if kind == "module" else ""
            assert module == ".".join(expected.split(".")[-2:] if expected[-1:].isdigit() else expected.split(".")[-1:])


def test_asynchronous_calls_do_not_overlap_on_a_lane(tmp_path: Path) -> None:
    """Two that are open at once have two lanes; the third one fits behind the first."""
    process = Process({"main": [call("a", 10, asynchronous=True), call("b", 10, asynchronous=True), call("c", 10)]})
    tables = process.tables()
    from torchreel.reel.meta import write_meta
    from torchreel.reel.write import write_process

    ops = tables["ops"].to_pylist()
    for row, (start, length) in zip(ops, ((0, 100), (50, 100), (120, 10)), strict=True):
        row.update(start_ns=START + start, dur_ns=length)
    ops[2]["async"] = True
    import pyarrow as pa

    write_process(tmp_path / "run.reel" / process.name, {**tables, "ops": pa.Table.from_pylist(ops)})
    write_meta(tmp_path / "run.reel", {"root": process.name})
    lanes, _ = lanes_of(torchreel.load(tmp_path / "run.reel"))
    assert [(lane.is_async, list(lane.ids)) for lane in lanes] == [(True, [0, 2]), (True, [1])]


def test_an_empty_process_has_no_lanes(tmp_path: Path) -> None:
    assert lanes_of(torchreel.load(write_reel(tmp_path / "run.reel", Process({}))))[0] == []


@pytest.mark.parametrize("seed", range(6))
def test_calls_below_those_of_hidden_kinds_move_up(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    kinds = ("op", "module", "range")

    def some(depth: int) -> list[Call]:
        return [
            call(
                f"call {int(random.integers(3))}",
                int(random.integers(1, 90)),
                *(some(depth - 1) if depth and random.random() < 0.8 else ()),
                kind=kinds[int(random.integers(3))],
            )
            for _ in range(int(random.integers(1, 4)))
        ]

    path = write_reel(tmp_path / "run.reel", Process({"a": some(5), "b": some(3)}))
    reel = torchreel.load(path)
    lanes, labels = lanes_of(reel)
    hidden = without_kinds(lanes, labels, {"module", "range"})
    rows = {row["id"]: row for row in reel.table("ops").to_pylist()}

    def depth(row: dict[str, Any] | None) -> int:
        if row is None or row["parent"] is None:
            return 0
        parent = rows[row["parent"]]
        return depth(parent) + (parent["kind"] == "op")

    expected = {(row["thread"], depth(row), row["id"]) for row in rows.values() if row["kind"] == "op"}
    assert {(lane.thread, lane.depth, int(number)) for lane in hidden for number in lane.ids} == expected
    for lane in hidden:
        ends = lane.starts + np.diff(lane.sums)
        assert (ends[:-1] <= lane.starts[1:]).all()
