"""Every real snapshot is read, by our reader as by Python's, and its tables add up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.ingest.snapshot.plain import plain_loads
from tests.snapshots import SNAPSHOTS, snapshot
from torchreel import _decode
from torchreel.ingest import open_source, read_snapshot

every_snapshot = pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.stem)


@every_snapshot
def test_the_pickle_is_read_as_python_reads_it(path: Path) -> None:
    data = path.read_bytes()
    expected = plain_loads(data)
    assert _decode.read_pickle(data) == expected
    with path.open("rb") as file:
        assert _decode.read_pickle(file.fileno()) == expected


@every_snapshot
def test_every_row_is_there(path: Path) -> None:
    content = plain_loads(path.read_bytes())
    content = {"segments": content} if isinstance(content, list) else content
    tables = read_snapshot(path)
    assert tables["allocs"].num_rows == sum(map(len, content.get("device_traces", [])))
    assert tables["segments"].num_rows == len(content["segments"])
    assert tables["blocks"].num_rows == sum(len(segment["blocks"]) for segment in content["segments"])
    assert tables["annotations"].num_rows == len(content.get("external_annotations", []))
    assert tables["settings"].num_rows == len(content.get("allocator_settings", {}))
    assert tables["processes"]["torch_version"].to_pylist() == [None]


@every_snapshot
def test_blocks_tile_their_segments(path: Path) -> None:
    tables = read_snapshot(path)
    blocks = iter(tables["blocks"].select(["device", "address", "size"]).to_pylist())
    for segment in tables["segments"].to_pylist():
        end = segment["address"]
        while end < segment["address"] + segment["size"]:
            block = next(blocks)
            assert (block["device"], block["address"]) == (segment["device"], end)
            end += block["size"]
        assert end == segment["address"] + segment["size"]
    assert next(blocks, None) is None


@every_snapshot
def test_totals_end_with_what_is_allocated(path: Path) -> None:
    tables = read_snapshot(path)
    blocks, allocs = tables["blocks"], tables["allocs"]
    held = blocks.filter(pc.equal(blocks["state"].cast(pa.string()), "active_allocated"))
    for device in allocs["device"].unique().to_pylist():
        of_device = pc.equal(held["device"].cast(pa.string()), device)
        expected = pc.sum(held.filter(of_device)["requested"]).as_py()
        totals = allocs.filter(pc.equal(allocs["device"].cast(pa.string()), device))["total"].to_pylist()
        assert totals[-1] == expected
        assert min(totals) >= 0


@every_snapshot
def test_frees_know_their_allocs(path: Path) -> None:
    rows = read_snapshot(path)["allocs"].to_pylist()
    for row in rows:
        if row["alloc"] is not None:
            maker = rows[row["alloc"]]
            assert row["action"] in ("free_requested", "free_completed")
            assert (maker["action"], maker["addr"], maker["device"]) == ("alloc", row["addr"], row["device"])
            assert maker["id"] < row["id"]


def test_a_complete_history_explains_every_block() -> None:
    with open_source(snapshot("lm4_train_ctx100")) as reel:
        rows = reel.sql(
            "SELECT count(*) n, count(*) FILTER (a.size = b.requested AND a.addr = b.address) ok"
            " FROM blocks b LEFT JOIN allocs a ON a.id = b.alloc WHERE b.state = 'active_allocated'"
        ).to_pylist()
    assert rows == [{"n": 162, "ok": 162}]


def test_stacks_of_a_history_of_torch_2_0() -> None:
    path = snapshot("state_only_a")
    content = plain_loads(path.read_bytes())
    tables = read_snapshot(path)
    stacks = dict(zip(*tables["stacks"].to_pydict().values(), strict=True))
    frames = {row["id"]: row for row in tables["frames"].to_pylist()}
    blocks = [block for segment in content["segments"] for block in segment["blocks"]]
    for block, row in zip(blocks, tables["blocks"].to_pylist(), strict=True):
        if "history" not in block:
            assert row["stack"] is None
            continue
        found = [frames[number] for number in stacks[row["stack"]]]
        assert [(f["file"], f["line"], f["function"]) for f in found] == [
            (f["filename"], f["line"], f["name"]) for f in block["history"][0]["frames"]
        ]


def test_devices_without_anything_are_kept() -> None:
    devices = read_snapshot(snapshot("three_gpus_expandable_oom"))["devices"].to_pylist()
    assert [(row["device"], row["index"]) for row in devices] == [(f"cuda:{n}", n) for n in range(4)]
