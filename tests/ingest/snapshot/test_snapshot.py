"""What a snapshot says, table by table; and a sentence that names the place for everything that it cannot say."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.snapshot.small import small_snapshot
from torchreel.errors import CorruptSnapshotError, NotASnapshotError
from torchreel.ingest import read_snapshot, tables_of
from torchreel.reel import TABLES

TIME = 1_790_000_000_000_000_000


def rows(table: Any, *columns: str) -> list[Any]:
    values = [table[column].to_pylist() for column in columns]
    return values[0] if len(columns) == 1 else list(zip(*values, strict=True))


def test_every_table() -> None:
    tables = tables_of(small_snapshot())
    assert {name: table.schema for name, table in tables.items()} == {name: TABLES[name].schema for name in tables}
    allocs = tables["allocs"]
    assert rows(allocs, "id", "device", "action", "size", "total", "alloc") == [
        (0, "cuda:0", "segment_alloc", 2 << 20, 0, None),
        (1, "cuda:0", "alloc", 1000, 1000, None),
        (2, "cuda:0", "alloc", 400, 1400, None),
        (3, "cuda:0", "alloc", 100, 1500, None),
        (4, "cuda:0", "free_requested", 100, 1400, 3),
        (5, "cuda:0", "free_completed", 100, 1400, 3),
        (6, "cuda:0", "free_requested", 400, 1000, 2),
        (7, "cuda:0", "snapshot", 1536, 1000, None),
        (8, "cpu", "segment_map", 20 << 20, 0, None),
        (9, "cpu", "oom", 1 << 40, 0, None),
    ]
    assert rows(allocs, "time_ns") == [TIME + 1000 * n for n in (0, 1, 2, 3, 4, 5, 6, 7, 1, 9)]
    assert rows(allocs, "addr")[-1] is None
    assert rows(allocs, "device_free") == [None] * 9 + [123]
    assert rows(allocs, "forward")[2] == "first\\n\nsecond\\n"
    assert set(rows(allocs, "stack")) == {0}
    assert set(rows(allocs, "pool", "compile_context")) == {("0,0", "N/A")}
    assert rows(allocs, "metadata")[3:5] == ["epoch 1", ""]
    assert rows(tables["segments"], "device", "address", "size", "allocated", "active", "requested") == [
        ("cuda:0", 1 << 20, 2 << 20, 1024, 1536, 1400),
        ("cpu", 1 << 30, 20 << 20, 0, 0, 0),
    ]
    assert rows(tables["segments"], "stream", "type", "pool", "expandable", "stack") == [
        (0, "small", "0,0", False, 0),
        (7, "large", "1,2", True, 1),
    ]
    assert rows(tables["blocks"], "device", "size", "requested", "state", "stack", "alloc") == [
        ("cuda:0", 1024, 1000, "active_allocated", 0, 1),
        ("cuda:0", 512, 400, "active_pending_free", 1, 2),
        ("cuda:0", (2 << 20) - 1536, 0, "inactive", 1, None),
        ("cpu", 20 << 20, 0, "inactive", 1, None),
    ]
    assert tables["annotations"].to_pylist() == [
        {"device": "cuda:0", "time_ns": TIME, "name": "step", "stage": "START"},
        {"device": "cuda:0", "time_ns": TIME + 9000, "name": "step", "stage": "END"},
    ]
    unknown = {"total": None, "fraction": None}
    of_snapshots = ["device", "index", "total", "fraction", "lost_events", "note"]
    assert tables["devices"].select(of_snapshots).to_pylist() == [
        {"device": "cuda:0", "index": 0, "total": 1 << 34, "fraction": 0.5, "lost_events": 0, "note": None},
        {"device": "cpu", "index": 1, **unknown, "lost_events": 3, "note": "each block is a segment"},
    ]
    assert tables["settings"].to_pylist() == [
        {"name": "max_split_size", "value": "-1"},
        {"name": "expandable_segments", "value": "false"},
        {"name": "roundup_power2_divisions", "value": '{"1": 0}'},
    ]
    assert tables["stacks"].to_pylist() == [{"id": 0, "frames": [0, 1]}, {"id": 1, "frames": []}]
    assert tables["frames"].to_pylist() == [
        {"id": 0, "file": "/src/model.py", "line": 12, "function": "forward", "fx": None},
        {"id": 1, "file": "/src/train.py", "line": 3, "function": "<module>", "fx": None},
    ]
    (process,) = tables["processes"].to_pylist()
    known = {key: value for key, value in process.items() if value is not None}
    ends = {"start_ns": TIME, "end_ns": TIME + 9000}
    assert known == {"name": "snapshot", "torch_version": "2.13.0", **ends, "complete": True, "lost_events": 3}


def test_json_gives_the_same_tables(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(small_snapshot()))
    (tmp_path / "y.json").write_bytes(b"\xef\xbb\xbf \n" + json.dumps(small_snapshot(), indent=1).encode())
    expected = {name: table.to_pylist() for name, table in tables_of(small_snapshot()).items()}
    for name in ("x.json", "y.json"):
        assert {name: table.to_pylist() for name, table in read_snapshot(tmp_path / name).items()} == expected


def test_snapshots_of_old_versions() -> None:
    # GIVEN what torch 2.0 gives: a list of segments, histories of blocks and no addresses
    frames = [{"filename": "a.py", "line": 1, "name": "f"}]
    blocks = [
        {"size": 512, "state": "active_allocated", "history": [{"addr": 4096, "real_size": 500, "frames": frames}]},
        {"size": 1536, "state": "active_pending_free", "history": []},
        {"size": 2048, "state": "inactive"},
    ]
    segment = {"address": 4096, "total_size": 4096, "stream": 0, "segment_type": "small", "blocks": blocks}
    empty = {"device": 3, "address": 1 << 20, "total_size": 0, "blocks": []}
    for value in ([segment, empty], {"segments": [segment, empty]}, {"segments": (segment, empty), "x": object()}):
        tables = tables_of(value)
        assert rows(tables["blocks"], "address", "requested", "stack") == [
            (4096, 500, 0),
            (4608, None, None),
            (6144, None, None),
        ]
        assert rows(tables["segments"], "device", "allocated", "active", "pool", "expandable") == [
            ("cuda:0", 512, 2048, None, None),
            ("cuda:3", 0, 0, None, None),
        ]
        assert rows(tables["devices"], "index") == [0, 3]
        assert tables["allocs"].num_rows == 0


def event(action: str, addr: int, size: int) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0}


def totals(*events: dict[str, Any], held: int = 0) -> list[int]:
    block = {"size": held, "state": "active_allocated"}
    segment = {"address": 1 << 40, "total_size": held, "blocks": [block] if held else []}
    allocs = tables_of({"segments": [segment], "device_traces": [list(events)]})["allocs"]
    return rows(allocs, "total")


def test_totals_where_the_history_has_gaps() -> None:
    # a block older than the history, freed in it
    assert totals(event("free_requested", 1, 10), event("free_completed", 1, 10)) == [0, 0]
    assert totals(event("alloc", 2, 5), event("free_completed", 1, 10)) == [15, 5]
    # the free is missing: the address is used again
    assert totals(event("alloc", 1, 10), event("alloc", 1, 20)) == [10, 20]
    # one of the two frees is missing
    assert totals(event("alloc", 1, 10), event("free_requested", 1, 10), event("alloc", 2, 1)) == [10, 0, 1]
    assert totals(event("alloc", 1, 10), event("free_completed", 1, 10), event("alloc", 2, 1)) == [10, 0, 1]
    # a free that comes twice
    assert totals(event("alloc", 1, 10), event("free_requested", 1, 10), event("free_requested", 1, 10)) == [10, 0, 0]
    # what is held at the end, and was there before
    assert totals(event("alloc", 1, 10), event("free_requested", 1, 10), held=100) == [110, 100]
    assert totals(held=100) == []


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    snapshot = small_snapshot()
    change(snapshot)
    return snapshot


def setting(*path: Any) -> Callable[[Any], Callable[[dict[str, Any]], None]]:
    def to(value: Any) -> Callable[[dict[str, Any]], None]:
        def change(snapshot: dict[str, Any]) -> None:
            at: Any = snapshot
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value

        return change

    return to


SEGMENT, BLOCK, EVENT = ("segments", 1), ("segments", 0, "blocks", 1), ("device_traces", 0, 2)
WRONG = [
    (("segments",), 5, "segments is 5, not a list"),
    (("segments",), [None], "segments[0] is None, not a dictionary"),
    (SEGMENT, [], "segments[1] is a list, not a dictionary"),
    ((*SEGMENT, "blocks"), {}, "segments[1].blocks is a dict, not a list"),
    ((*SEGMENT, "device"), 1024, "segments[1].device is 1024, not the number of a device"),
    ((*SEGMENT, "device"), -1, "segments[1].device is -1, not the number of a device"),
    ((*SEGMENT, "address"), 2**70, "segments[1].address is 1180591620717411303424, not an address"),
    ((*SEGMENT, "address"), 2**500, "segments[1].address is an integer of 501 bits, not an address"),
    ((*SEGMENT, "address"), 2**63 - 1, "segments[1].address is 9223372036854775807, not an address"),
    ((*SEGMENT, "total_size"), None, "segments[1].total_size is None, not a number of bytes"),
    ((*SEGMENT, "total_size"), True, "segments[1].total_size is True, not a number of bytes"),
    ((*SEGMENT, "stream"), 2**64, "segments[1].stream is 18446744073709551616, not the handle of a stream"),
    ((*SEGMENT, "segment_type"), b"large", "segments[1].segment_type is b'large', not a text"),
    ((*SEGMENT, "segment_pool_id"), (0,),
     "segments[1].segment_pool_id is a tuple, not two numbers that name a memory pool"),
    ((*SEGMENT, "segment_pool_id"), 0, "segments[1].segment_pool_id is 0, not two numbers that name a memory pool"),
    ((*SEGMENT, "is_expandable"), "yes", "segments[1].is_expandable is 'yes', not true or false"),
    ((*SEGMENT, "frames"), "x" * 100, f"segments[1].frames is '{'x' * 40}'..., not a list"),
    ((*SEGMENT, "frames"), [5], "segments[1].frames[0] is 5, not a dictionary"),
    (BLOCK, 1.5, "segments[0].blocks[1] is 1.5, not a dictionary"),
    ((*BLOCK, "size"), "x", "segments[0].blocks[1].size is 'x', not a number of bytes"),
    ((*BLOCK, "size"), -1, "segments[0].blocks[1].size is -1, not a number of bytes"),
    ((*BLOCK, "size"), 2**63, "segments[0].blocks[1].size is 9223372036854775808, not a number of bytes"),
    ((*BLOCK, "size"), 2**62, "the values of 'size' add up to more bytes than there can be"),
    ((*BLOCK, "address"), 1.0, "segments[0].blocks[1].address is 1.0, not an address"),
    ((*BLOCK, "state"), "gone", "segments[0].blocks[1].state is 'gone', not one of active_allocated, "
     "active_pending_free, active_awaiting_free, inactive"),
    ((*BLOCK, "forward_frames"), ["a", 1], "segments[0].blocks[1].forward_frames is a list, not a list of texts"),
    ((*BLOCK, "history"), 3, "segments[0].blocks[1].history is 3, not a list"),
    ((*BLOCK, "history"), [3], "segments[0].blocks[1].history[0] is 3, not a dictionary"),
    ((*BLOCK, "history"), [{"real_size": "x"}],
     "segments[0].blocks[1].history[0].real_size is 'x', not a number of bytes"),
    (("device_traces",), {}, "device_traces is a dict, not a list"),
    (("device_traces",), [[]] * 1025, "device_traces has 1025 devices, more than 1024"),
    (("device_traces", 1), None, "device_traces[1] is None, not a list"),
    (EVENT, "x", "device_traces[0][2] is 'x', not a dictionary"),
    ((*EVENT, "action"), None, "device_traces[0][2].action is None, not a text"),
    ((*EVENT, "addr"), None, "device_traces[0][2] has no 'addr'"),
    ((*EVENT, "size"), math.nan, "device_traces[0][2].size is nan, not a number of bytes"),
    ((*EVENT, "time_us"), math.nan, "device_traces[0][2].time_us is nan, not a time in microseconds"),
    ((*EVENT, "time_us"), -1, "device_traces[0][2].time_us is -1, not a time in microseconds"),
    ((*EVENT, "time_us"), 2**62, "device_traces[0][2].time_us is 4611686018427387904, not a time in microseconds"),
    ((*EVENT, "compile_context"), 1, "device_traces[0][2].compile_context is 1, not a text"),
    ((*EVENT, "pool_id"), (0, -1), "device_traces[0][2].pool_id is a tuple, not two numbers that name a memory pool"),
    ((*EVENT, "frames"), {}, "device_traces[0][2].frames is a dict, not a list"),
    ((*EVENT, "frames"), [{}], "device_traces[0][2].frames[0].filename is None, not a text"),
    ((*EVENT, "frames"), [{"filename": "", "line": "3", "name": ""}],
     "device_traces[0][2].frames[0].line is '3', not the number of a line"),
    ((*EVENT, "frames"), [{"filename": "", "line": 2**40, "name": ""}],
     "device_traces[0][2].frames[0].line is 1099511627776, not the number of a line"),
    (("device_traces", 1, 1, "device_free"), "none",
     "device_traces[1][1].device_free is 'none', not a number of bytes"),
    (("allocator_settings",), [], "allocator_settings is a list, not a dictionary"),
    (("allocator_settings", "x"), math.inf, "allocator_settings.x is inf, not the value of a setting"),
    (("allocator_settings", "x"), {"y": [b""]}, "allocator_settings.x.y[0] is b'', not the value of a setting"),
    (("allocator_settings", 5), 5, "allocator_settings has a key of type int, not a text"),
    (("external_annotations",), "x", "external_annotations is 'x', not a list"),
    (("external_annotations", 1, "stage"), "MIDDLE",
     "external_annotations[1].stage is 'MIDDLE', not one of START, END"),
    (("external_annotations", 1, "name"), 7, "external_annotations[1].name is 7, not a text"),
    (("torch_version",), 2.13, "torch_version is 2.13, not a text"),
    (("devices",), ["cpu", "cpu"], "devices[1] is 'cpu', not a name of its own: devices[0] has it"),
    (("devices",), [0], "devices[0] is 0, not the name of a device"),
    (("device_total_memory",), [-5], "device_total_memory[0] is -5, not a number of bytes"),
    (("memory_fraction",), [1.5], "memory_fraction[0] is 1.5, not a part between 0 and 1"),
    ((*EVENT, "frames"), [{"filename": "", "line": 3, "name": "", "fx_node_name": 5}],
     "device_traces[0][2].frames[0].fx_node_name is 5, not a text"),
    (("lost_events",), 3, "lost_events is 3, not a list"),
    (("notes",), [1], "notes[0] is 1, not a text of at most 65,536 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "sentence"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_value_is_named_by_its_place(path: tuple[Any, ...], value: Any, sentence: str) -> None:
    with pytest.raises(CorruptSnapshotError) as error:
        tables_of(changed(setting(*path)(value)))
    assert str(error.value) == f"The snapshot cannot be used: {sentence}. Dump the snapshot again."


@pytest.mark.parametrize(
    ("path", "key"),
    [(SEGMENT, "blocks"), (SEGMENT, "address"), (SEGMENT, "total_size"), (BLOCK, "size"), (BLOCK, "state"),
     (EVENT, "action"), (EVENT, "size"), (EVENT, "addr"), (("external_annotations", 0), "name")],
)  # fmt: skip
def test_what_must_be_there(path: tuple[Any, ...], key: str) -> None:
    def remove(snapshot: dict[str, Any]) -> None:
        at: Any = snapshot
        for part in path:
            at = at[part]
        del at[key]

    with pytest.raises(CorruptSnapshotError, match=f"has no '{key}'. Dump"):
        tables_of(changed(remove))


OPTIONAL = {
    SEGMENT: ["device", "allocated_size", "active_size", "requested_size", "stream", "segment_type", "frames"],
    BLOCK: ["address", "requested_size", "frames"],
    EVENT: ["stream", "time_us", "compile_context", "user_metadata", "pool_id", "frames", "forward_frames"],
    ("external_annotations", 0): ["device", "time_us"],
    (): ["device_traces", "allocator_settings", "external_annotations", "torch_version", "devices", "notes"],
}


@pytest.mark.parametrize(("path", "keys"), OPTIONAL.items(), ids=str)
def test_what_may_be_missing_or_more(path: tuple[Any, ...], keys: list[str]) -> None:
    def remove(snapshot: dict[str, Any]) -> None:
        at: Any = snapshot
        for part in path:
            at = at[part]
        for key in keys:
            del at[key]
        at["something new"] = {"of": ["a", "later", "torch"]}

    tables_of(changed(remove))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (5, "it is 5"),
        (None, "it is None"),
        ("text", "it is 'text'"),
        ([1, 2], "it is a list of other things than segments"),
        ([{"a": 1}], "it is a list of other things than segments"),
        ((), "it is a tuple"),
        ({}, "it is an empty dictionary"),
        ({"model": {}, "epoch": 3}, "it is a dictionary with the keys 'model', 'epoch'"),
    ],
)
def test_other_things_are_no_snapshots(value: Any, what: str, tmp_path: Path) -> None:
    advice = "Give what torch.cuda.memory._dump_snapshot wrote."
    with pytest.raises(NotASnapshotError) as error:
        tables_of(value)
    assert str(error.value) == f"The snapshot is not a memory snapshot: {what}. {advice}"
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(NotASnapshotError) as error:
        read_snapshot(path)
    assert str(error.value) == f"{path} is not a memory snapshot: {what}. {advice}"


def test_texts_that_no_table_can_hold_are_repaired(tmp_path: Path) -> None:
    snapshot = changed(
        setting("device_traces", 0, 1, "frames")([{"filename": "a\udc80.py", "line": 1, "name": "\ud800"}])
    )
    snapshot["devices"][1] = "\udfff"
    snapshot["allocator_settings"]["\ud800"] = "\ud800"
    snapshot["external_annotations"][0]["name"] = "a\0b\ud83d"
    (tmp_path / "x.pickle").write_bytes(pickle.dumps(snapshot))
    tables = read_snapshot(tmp_path / "x.pickle")
    assert rows(tables["frames"], "file", "function")[-1] == ("a\ufffd.py", "\ufffd")
    assert rows(tables["annotations"], "name")[0] == "a\0b\ufffd"
    assert rows(tables["devices"], "device")[1] == "\ufffd"
    assert rows(tables["settings"], "name", "value")[-1] == ("\ufffd", '"\ufffd"')
