"""Segments as the page shows them: windows, cells, one segment's pieces, and the simulator beside them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.analyze.memory import simulated
from tests.analyze.memory.traces import Trace
from tests.synthetic import Process, call, write_reel
from tests.web.questions.test_memory import Asked, printed
from torchreel.analyze.memory import allocator_state, fragmentation
from torchreel.analyze.memory.segments import FREE, usage
from torchreel.errors import OptionError
from torchreel.web.questions.segments import _cells

MIB = 1 << 20


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    path = tmp_path_factory.mktemp("segments")
    simulated.write(path, 3, count=300)
    return Asked(path / "trace.reel")


@pytest.mark.parametrize("position", [-1, 0, 40, 150])
def test_rows_are_the_state_after_an_event(ask: Asked, position: int) -> None:
    answer = ask("segments", event=position, rows=200)
    state = allocator_state(ask.memory, position)
    assert answer["count"] == len(answer["segments"]) == len(state.segments)
    assert answer["usage"] == asdict(usage(state))
    assert answer["blocks"] == int((state.pieces.state != FREE).sum())
    for place, row in enumerate(answer["segments"]):
        mine = state.pieces.segment == place
        assert (int(row["address"], 16), row["size"]) == (state.segments.address[place], state.segments.size[place])
        assert row["pieces"]["begin"] == (state.pieces.address[mine] - state.segments.address[place]).tolist()
        assert row["pieces"]["size"] == state.pieces.size[mine].tolist()
        assert row["pieces"]["block"] == state.pieces.block[mine].tolist()
        assert row["free"] + row["allocated"] == row["size"] == sum(row["pieces"]["size"])
        assert row["free"] == sum(
            s for s, k in zip(row["pieces"]["size"], row["pieces"]["state"], strict=True) if not k
        )


def test_the_end_is_what_the_command_prints(ask: Asked) -> None:
    answer = ask("segments", event=ask.memory.history.events - 1)
    found = fragmentation(ask.memory)
    assert found is not None
    assert answer["usage"] == asdict(found.total)
    assert answer["pools"] == [asdict(pool) for pool in found.pools]


def test_without_an_instant_it_is_the_peak_and_a_range_has_its_own(ask: Asked) -> None:
    level = ask.memory.history.allocated
    assert ask("segments")["at"]["event"] == int(level.argmax()) - 1
    times = ask.memory.history.times
    end = int(times[30] - times[0])
    assert ask("segments", begin=0, end=end)["at"]["event"] == int(level[:31].argmax()) - 1


def test_a_window_of_rows_in_each_order(ask: Asked) -> None:
    every = ask("segments", rows=200)["segments"]
    assert len(every) > 5
    assert ask("segments", first=2, rows=3)["segments"] == every[2:5]
    assert ask("segments", first=10_000)["segments"] == []
    for sort, key in (("size", "size"), ("free", "free")):
        rows = ask("segments", rows=200, sort=sort)["segments"]
        assert [row[key] for row in rows] == sorted((row[key] for row in every), reverse=True)
        assert sorted(row["address"] for row in rows) == sorted(row["address"] for row in every)


def test_one_segment_with_its_pieces(ask: Asked) -> None:
    every = ask("segments", event=150, rows=200, sort="size")["segments"]
    for place, row in enumerate(every):
        # Any address in it names it, as a block's does.
        inside = hex(int(row["address"], 16) + row["size"] - 1)
        answer = ask("segments", event=150, segment=inside, sort="size")
        chosen = answer["chosen"]
        assert (answer["place"], chosen["address"]) == (place, row["address"])
        assert [piece["size"] for piece in chosen["rows"]] == row["pieces"]["size"]
        assert chosen["count"] == len(chosen["rows"])
        for piece, number in zip(chosen["rows"], row["pieces"]["block"], strict=True):
            assert (piece["state"] == "free") == (number == -1) == ("info" not in piece)
            assert number == -1 or (piece["info"]["block"], piece["info"]["address"]) == (number, piece["address"])
    assert "chosen" not in ask("segments", event=150, segment="0x1")
    assert "chosen" not in ask("segments", event=150, segment="<script>")
    assert "chosen" not in ask("segments", event=150, segment="f" * 300)


def test_a_segment_of_many_blocks_is_cells(tmp_path: Path) -> None:
    trace = Trace()
    trace.event("segment_alloc", 0, 8 * MIB)
    trace.alloc(0, 2 * MIB)
    for number in range(6_000):
        trace.alloc(2 * MIB + 1024 * number, 512)
    trace.segment(0, 8 * MIB, type="small")
    ask = Asked(trace.write(tmp_path / "run.reel"))
    answer = ask("segments", rows=200)
    (row,) = answer["segments"]
    assert row["blocks"] == 6_001 and len(row["pieces"]["begin"]) <= 12_000
    many = ask("segments", segment="0x0")["chosen"]
    assert len(many["pieces"]["begin"]) <= 2_000 and sum(many["pieces"]["size"]) == 8 * MIB
    first = many["pieces"]["block"][0]
    assert first >= 0 and many["pieces"]["size"][0] == pytest.approx(2 * MIB, abs=8 * MIB / 2_000)
    assert len(many["rows"]) == 400 and many["count"] == 12_001
    later = ask("segments", segment="0x0", skip=400)["chosen"]["rows"]
    assert later[0]["address"] == hex(2 * MIB + 512 * 399)
    assert len(json.dumps(answer)) < 400_000


@pytest.mark.parametrize("seed", range(5))
def test_a_cell_shows_what_most_of_it_is(seed: int) -> None:
    """Against counting the bytes of each cell, where pieces are far smaller than cells."""
    random = np.random.default_rng(seed)
    size = random.integers(1, 12, 4_000)
    begin = np.cumsum(size) - size
    state = np.where(random.random(4_000) < 0.5 + 0.4 * np.sin(begin / 3_000), 1, 0)
    zeros = np.zeros(4_000, np.int64)
    length, cells = int(size.sum()), 20
    columns = _cells((begin, size, size, state, zeros, zeros, np.arange(4_000)), length, cells)
    starts, wide, kind = columns[0], columns[1], columns[3]
    assert starts[0] == 0 and starts[-1] + wide[-1] == length and (starts[1:] == (starts + wide)[:-1]).all()
    bytes_ = np.repeat(state, size)
    for cell in range(cells):
        part = bytes_[cell * length // cells : (cell + 1) * length // cells]
        middle = (cell + 0.5) * length / cells
        shown = kind[np.searchsorted(starts, middle, side="right") - 1]
        if abs(part.mean() - 0.5) > 0.05:
            assert shown == (part.mean() > 0.5)


def test_an_allocator_without_segments_shows_blocks(tmp_path: Path) -> None:
    trace = Trace("cpu")
    trace.alloc(4096, 100)
    trace.alloc(1 << 40, 50)
    answer = Asked(trace.write(tmp_path / "run.reel"))("segments")
    assert (answer["has_segments"], answer["regions"], answer["blocks"]) == (False, 2, 2)
    assert answer["usage"]["reserved"] == 0
    assert all(row["region"] and row["free"] == 0 for row in answer["segments"])


def test_blocks_without_an_address_are_counted(tmp_path: Path) -> None:
    process = Process({"main": [call("aten::mm", 5)]}, allocs=[("alloc", 64), ("alloc", 32)])
    ask = Asked(write_reel(tmp_path / "run.reel", process))
    answer = ask("segments", event=1)
    assert answer["count"] == 0 and answer["without_address"] >= 1


def test_a_reel_without_memory(tmp_path: Path) -> None:
    ask = Asked(write_reel(tmp_path / "run.reel", Process({"main": [call("aten::mm", 5)]})))
    assert ask("segments") == {"devices": [], "segments": []}
    with pytest.raises(OptionError, match="no history"):
        ask("simulate")


@pytest.mark.parametrize("conf", ["", "expandable_segments:True", "max_split_size_mb:30"])
def test_the_simulator_says_what_the_command_does(ask: Asked, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask("simulate", conf=conf)
    given = ("--conf", conf) if conf else ()
    command: dict[str, Any] = json.loads(printed(capsys, "simulate", str(ask.path), *given, "--format", "json"))
    (device,) = command.values()
    for kind in ("as_recorded", "simulated", "recorded"):
        assert {key: device[kind][key] for key in answer[kind]} == answer[kind]


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("segments", {"sort": "colour"}),
        ("segments", {"rows": "100000"}),
        ("segments", {"first": "-1"}),
        ("segments", {"event": "1e9"}),
        ("segments", {"device": "7"}),
        ("segments", {"segment": "0x0", "skip": "-1"}),
        ("simulate", {"conf": "nonsense"}),
        ("simulate", {"conf": "x" * 1_000}),
    ],
)
def test_nonsense_is_refused(ask: Asked, question: str, query: dict[str, str]) -> None:
    if "skip" in query:
        query = {**query, "segment": ask("segments")["segments"][0]["address"]}
    with pytest.raises(OptionError):
        ask(question, **query)
