"""Answers about every real trace: equal to what another program found, and to each other."""

from __future__ import annotations

import functools
import gzip
import json
from typing import Any

import pytest

import torchreel
from tests.gpu_traces import FACTS, TRACES, gpu_reel, trace
from torchreel.analyze.gpu.activities import activities
from torchreel.analyze.gpu.answers import Gpu
from torchreel.analyze.gpu.efficiency import filled

pytestmark = pytest.mark.skipif(not TRACES, reason="there are no real traces: name their directory in TORCHREEL_TRACES")
# Its activities are of no kind that the facts count.
MTIA = "mtia_inference.json.gz"


@functools.cache
def answers(name: str) -> Gpu:
    return torchreel.gpu(gpu_reel(name))


@pytest.fixture(params=TRACES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def index(device: str) -> str:
    return device.partition(":")[2]


def test_devices(name: str) -> None:
    facts = FACTS[name]
    rows = {index(row["device"]): row for row in answers(name).devices.to_pylist()}
    if name == MTIA:
        (row,) = rows.values()
        assert row["compute_ns"] == row["busy_ns"] and facts["devices"] == {}
        waits = sum(gpu_reel(name).table("syncs", ["dur_ns"])["dur_ns"].to_pylist())
        assert sum(answers(name).kernels["device_ns"].to_pylist()) + waits == facts["mtia_ns"]
        return
    expected = {device: {k: v for k, v in one.items() if k != "streams"} for device, one in facts["devices"].items()}
    if not expected:
        assert [row["device"] for row in rows.values()] == ["cpu"]
        return
    assert {device: {k: rows[device][k] for k in one} for device, one in expected.items()} == expected
    assert set(rows) == set(expected)
    occupancy = facts.get("occupancy_percent")
    assert [row["occupancy_percent"] for row in rows.values()] == [pytest.approx(occupancy, abs=1e-4)] or not occupancy
    assert {row["rank"] for row in rows.values()} == {facts.get("rank")}
    if any(facts["device_names"]):
        assert {row["model"] for row in rows.values()} <= set(facts["device_names"])


def test_streams(name: str) -> None:
    if name != MTIA:
        rows = {f"{index(row.pop('device'))}/{row.pop('stream')}": row for row in answers(name).streams.to_pylist()}
        assert [row.pop("process") for row in rows.values()] == [0] * len(rows)
        assert rows == FACTS[name]["streams"]


def test_launches(name: str) -> None:
    if name != MTIA:
        expected = FACTS[name].get("launch")
        assert answers(name).launches.to_pylist() == ([{"process": 0, **expected}] if expected else [])


def test_copies_collectives_graphs_and_kernels(name: str) -> None:
    facts, found = FACTS[name], answers(name)
    assert {row.pop("direction"): row for row in found.copies.to_pylist()} == facts["copies"]
    graphs = [(row["launches"], row["activities"]) for row in found.graphs.to_pylist()] or [(0, 0)]
    assert graphs == [(facts["graph_launches"], facts["graph_activities"])]
    kernels = {row["name"]: row for row in found.kernels.to_pylist() if row["kind"] != "other"}
    assert len(kernels) == facts["kernel_names"]
    for fact in facts["by_kernel"]:
        row = kernels[fact["name"]]
        assert [row[key] for key in ("calls", "device_ns", "min_ns", "max_ns")] == list(fact.values())[1:]
    collectives = found.collectives.to_pylist()
    for kind, fact in facts["collectives"].items():
        rows = [row for row in collectives if (row["group"] is None if kind == "None" else row["name"] == kind)]
        known = [row for row in rows if kind == "None" or row["group"] is not None]
        assert {"count": sum(row["count"] for row in known), "ns": sum(row["ns"] for row in known)} == fact


def test_the_parts_add_up(name: str) -> None:
    """Of the whole, and of a step; sums of all tables over the same activities are the same."""
    reel = gpu_reel(name)
    steps = [None, *sorted({row["step"] for row in reel.table("steps", ["step"]).to_pylist()})]
    for step in steps[:2]:
        found = answers(name) if step is None else torchreel.gpu(reel, step=step)
        for row in found.devices.to_pylist():
            parts = ("compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns")
            assert sum(row[part] for part in parts) == row["span_ns"] == row["busy_ns"] + row["idle_ns"]
            assert row["communication_ns"] == row["exposed_communication_ns"] + row["overlap_ns"]
            assert 0 <= (row["sm_efficiency_percent"] or 0) <= 100 * row["busy_ns"] / row["span_ns"] + 1e-9
        for row in found.streams.to_pylist():
            parts = ("idle_host_ns", "idle_back_to_back_ns", "idle_other_ns")
            assert sum(row[part] for part in parts) == row["idle_ns"] >= 0
        if not found.of_cpu:
            assert sum(found.idle["ns"].to_pylist()) == sum(found.devices["idle_ns"].to_pylist())
        kernels = found.kernels.to_pylist()
        device_ns = sum(row["device_ns"] for row in kernels)
        assert sum(found.ranges["device_ns"].to_pylist()) == device_ns
        assert sum(found.ranges["activities"].to_pylist()) == sum(row["calls"] for row in kernels)
        assert sum(found.streams["activities"].to_pylist()) == sum(row["calls"] for row in kernels)
        assert sum(found.tensor_cores["kernel_ns"].to_pylist()) == sum(
            row["device_ns"] for row in kernels if row["kind"] not in ("copy", "set")
        )
        assert found.queue["max"].to_pylist() == found.streams["queue_max"].to_pylist()


def test_what_ops_launched_in_all_is_in_their_sequences(name: str) -> None:
    """An op that no op called has all that was launched within it: the sum over those is all that ops launched."""
    found, reel = answers(name), gpu_reel(name)
    rows = reel.sql(
        "select o.name, count(*) as count, sum(k.dur_ns)::bigint as ns from kernels k join ops o on o.id = k.op"
        " where o.kind not in ('range', 'module', 'python', 'runtime', 'driver', 'overhead') group by 1"
    ).to_pylist()
    counted: dict[str, list[int]] = {}
    for row in found.sequences.to_pylist():
        sums = counted.setdefault(row["op"], [0, 0])
        sums[0] += row["count"] * len(row["kernels"])
        sums[1] += row["device_ns"]
    for row in rows:  # with what the calls inside launched, it is no less
        assert counted[row["name"]][0] >= row["count"] and counted[row["name"]][1] >= row["ns"]


def test_utilisation_adds_up_to_busy(name: str) -> None:
    found = answers(name)
    for row in found.devices.to_pylist():
        pieces = [piece for piece in found.utilisation.to_pylist() if piece["device"] == row["device"]]
        busy = sum(piece["busy_percent"] / 100 * (piece["end_ns"] - piece["start_ns"]) for piece in pieces)
        if not row["memory_ns"] and pieces:
            assert busy == pytest.approx(row["busy_ns"], rel=1e-9)
        full = sum(
            (piece["sm_efficiency_percent"] or 0) / 100 * (piece["end_ns"] - piece["start_ns"]) for piece in pieces
        )
        assert full == pytest.approx((row["sm_efficiency_percent"] or 0) / 100 * row["span_ns"], rel=1e-9, abs=1e-3)


def test_the_tensorboard_plug_in_says_the_same() -> None:
    """The counters of its own test, which has utilisation times 100 and efficiency times 10, to be seen."""
    document = json.loads(trace("tb_gpu_metrics_expected.json").read_text())
    counters: dict[str, list[tuple[int, float]]] = {}
    for event in document["traceEvents"]:
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).append((event["ts"] * 1000, *event["args"].values()))
    expected = {name: values[2:] for name, values in counters.items()}  # the first two are there for the scale
    reel = gpu_reel("tb_gpu_metrics_input.json")
    busy = {
        piece["start_ns"]: piece["busy_percent"] / 100 * (piece["end_ns"] - piece["start_ns"])
        for piece in answers("tb_gpu_metrics_input.json").utilisation.to_pylist()
    }
    *shown, (last, share), (end, _) = expected["GPU 0 Utilization"]
    percents = [(start, pytest.approx(ns * 100 / 1_000_000)) for start, ns in busy.items() if start < last]
    assert shown == percents
    # Its last piece goes to the end of the last call, ours to the end of the recording.
    assert sum(ns for start, ns in busy.items() if start >= last) == pytest.approx(share / 100 * (end - last))
    parts = filled(activities(reel))
    steps: list[tuple[int, Any]] = []
    for start, end, part in zip(parts.start.tolist(), parts.end.tolist(), parts.part.tolist(), strict=True):
        steps += [(start, pytest.approx(10 * part, rel=1e-9)), (end, 0)]
    assert expected["GPU 0 Est. SM Efficiency"] == steps


def test_two_ranks_of_one_job() -> None:
    names = ("a100_sampled_rank0of128.json.gz", "a100_sampled_rank1of128.json.gz")
    both = torchreel.gpu(gpu_reel(*names))
    apart = [row for name in names for row in answers(name).devices.to_pylist()]
    assert [row | {"process": 0} for row in both.devices.to_pylist()] == apart
    assert [row["process"] for row in both.devices.to_pylist()] == [0, 1]
    assert both.launches["pairs"].to_pylist() == [FACTS[name]["launch"]["pairs"] for name in names]
    assert sum(both.collectives["ns"].to_pylist()) == sum(
        sum(answers(name).collectives["ns"].to_pylist()) for name in names
    )


def test_counters_by_op() -> None:
    """77 ranges with 9 counters, and as many launches: each has an op, and nothing is lost."""
    name = "a100_cupti_counters.json.gz"
    found = answers(name).counters.to_pylist()
    with gzip.open(trace(name)) as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("cat") == "cuda_profiler_range"]
    sums: dict[str, float] = {}
    for event in events:
        for counter, value in event["args"].items():
            sums[counter] = sums.get(counter, 0) + value
    assert len(events) == 77 and len(sums) == 9
    for counter, value in sums.items():
        rows = [row for row in found if row["counter"] == counter]
        assert (sum(row["count"] for row in rows), sum(row["value"] for row in rows)) == (77, value)
        assert all(row["op"] for row in rows)
