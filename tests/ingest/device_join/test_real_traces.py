"""Real traces, taken apart into what our recorder would have seen and what Kineto alone saw, and joined again."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.gpu_traces import TRACES, gpu_reel
from tests.ingest.device_join.halves import mark
from torchreel.ingest.device_join.join import API_KINDS, Joined, join_device, without_clock_ranges
from torchreel.reel.tables import TABLES

FEW = [
    "a100_cuda_sync_simple_add.json.gz",  # waits
    "gp100_gpu_annotations.json.gz",  # ranges, a backward thread
    "h100_bert_small.json.gz",  # Python calls, nanoseconds
    "mi250_rocm62_toy.json.gz",
    "mi300_vllm_graph_replay.json.gz",  # one launch, 421 kernels
    "tb_gpu_metrics_input.json",  # torch 1.8
]
OF_DEVICES = ("kernels", "device_ranges", "syncs", "streams", "collectives", "kernel_counters", "samples", "devices")

Tables = dict[str, pa.Table]


def halves(name: str) -> tuple[Tables, Tables, Tables]:
    """The whole, the host's half and the device's half of a trace."""
    reel = gpu_reel(name)
    whole = {table: reel.table(table).drop_columns("process") for table in TABLES}
    api = pc.is_in(whole["ops"]["kind"].cast(pa.string()), pa.array(API_KINDS))
    host = {table: rows for table, rows in whole.items() if table not in OF_DEVICES}
    host["ops"] = whole["ops"].filter(pc.invert(api))
    ranges = pc.equal(whole["ops"]["kind"].cast(pa.string()), "range")
    used = pc.unique(host["ops"]["thread"])
    host["threads"] = whole["threads"].filter(pc.is_in(whole["threads"]["id"], used))
    device = {table: whole[table] for table in (*OF_DEVICES, "threads", "process_groups")}
    device["ops"] = whole["ops"].filter(pc.or_(api, ranges))
    return whole, host, device


def links(tables: Tables) -> list[tuple[Any, ...]]:
    """Of each kernel its launch and its op, by what they are and not by their ids."""
    threads = dict(zip(tables["threads"]["id"].to_pylist(), tables["threads"]["os_id"].to_pylist(), strict=True))
    columns = [tables["ops"][name].to_pylist() for name in ("name", "kind", "start_ns", "dur_ns", "thread", "args")]
    ids = tables["ops"]["id"].to_pylist()
    calls = {id: (*rest[:4], threads.get(rest[4]), rest[5]) for id, *rest in zip(ids, *columns, strict=True)}
    if "kernels" not in tables:
        return []
    kernels = tables["kernels"].sort_by("id").select(["launch", "op"]).to_pylist()
    return [(calls.get(row["launch"]), calls.get(row["op"])) for row in kernels]


EACH = [*FEW, *(pytest.param(name, marks=pytest.mark.long) for name in TRACES if name not in FEW)]


@pytest.mark.parametrize("name", EACH)
def test_every_kernel_comes_back_to_its_launch_and_its_op(name: str) -> None:
    whole, host, device = halves(name)
    joined = join_device(host, device)
    check_counts(whole, joined)
    assert links(joined.tables) == links(whole)


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize(("shift", "ppm"), [(5_000_000, 50), (-5_000_000, -50)])
def test_so_it_does_after_its_clock_was_off_and_is_aligned(name: str, shift: int, ppm: int) -> None:
    whole, host, device = halves(name)
    first, last = window(whole)
    host, device = with_marks(host, device, first, last)
    joined = join_device(host, moved(device, first, shift, ppm))
    assert joined.alignment.error_ns is not None and joined.alignment.error_ns <= LONGEST_MARK
    assert (joined.alignment.marks, joined.alignment.disagreeing) == (16, 0)
    check_counts(whole, Joined(without_clock_ranges(joined.tables), *list(vars(joined).values())[1:]))
    found = joined.tables.get("kernels", whole["kernels"])
    off = np.abs(found["start_ns"].to_numpy() - whole["kernels"].sort_by("id")["start_ns"].to_numpy())
    assert off.max(initial=0) <= joined.alignment.error_ns + 1
    assert by_name(links(joined.tables)) == by_name(links(whole))


@pytest.mark.parametrize("name", ["gp100_gpu_annotations.json.gz", "mi250_rocm62_toy.json.gz"])
def test_a_backward_thread_is_known_by_its_ops_where_kineto_has_another_number(name: str) -> None:
    whole, host, device = halves(name)
    main = whole["processes"]["pid"][0].as_py()
    rows = device["threads"].to_pylist()
    others = [{**row, "os_id": row["os_id"] if row["os_id"] == main else -247463936} for row in rows]
    assert others != rows
    device["threads"] = pa.Table.from_pylist(others, schema=device["threads"].schema)
    joined = join_device(host, device)
    assert joined.strange_threads == 0
    assert links(joined.tables) == links(whole)


def check_counts(whole: Tables, joined: Joined) -> None:
    assert joined.kernels == whole["kernels"].num_rows
    assert joined.unlaunched == whole["kernels"]["launch"].null_count
    assert joined.tables["ops"].num_rows == whole["ops"].num_rows


def window(whole: Tables) -> tuple[int, int]:
    """From before all that happened until after it."""
    times = [whole[name]["start_ns"] for name in ("ops", "kernels") if whole[name].num_rows]
    ends = [pc.add(whole[name]["start_ns"], whole[name]["dur_ns"]) for name in ("ops", "kernels")]
    first = min(pc.min(column).as_py() for column in times)
    return first - 1_000_000, max(pc.max(column).as_py() for column in ends if len(column)) + 1_000_000


LONGEST_MARK = 700


def with_marks(host: Tables, device: Tables, first: int, last: int) -> tuple[Tables, Tables]:
    """Both halves with ranges for the clocks at both ends, as long as they are on a real machine."""
    chance = random.Random(7)
    added: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for number in range(16):
        begin = (first if number < 8 else last) + 3_000 * number
        length = chance.randrange(250, 500)
        for rows in added:
            late = chance.randrange(0, 200)
            row = mark(10**9 + number, number, begin + late, begin + length + chance.randrange(0, 200))
            rows.append({**row, "thread": None})
    schema = TABLES["ops"].schema
    own, other = (pa.Table.from_pylist(rows, schema=schema) for rows in added)
    return (
        {**host, "ops": pa.concat_tables([host["ops"], own])},
        {**device, "ops": pa.concat_tables([device["ops"], other])},
    )


def moved(tables: Tables, origin: int, shift: int, ppm: int) -> Tables:
    """The tables by a clock that is ahead, and runs faster."""

    def off(column: pa.ChunkedArray) -> np.ndarray:
        times = column.to_numpy()
        return times + shift + np.rint((times - origin) * (ppm / 1e6)).astype(np.int64)

    result = dict(tables)
    for name, table in tables.items():
        for column in ("start_ns", "time_ns"):
            place = table.schema.get_field_index(column)
            if place >= 0 and name != "collectives" and table.num_rows:
                result[name] = table.set_column(place, table.schema.field(place), pa.array(off(table[column])))
    return result


def by_name(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Launches without their times, which are not exact to the nanosecond after the clock was off."""
    return [(launch and (*launch[:2], *launch[3:]), op) for launch, op in found]
