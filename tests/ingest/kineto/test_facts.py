"""Every real trace, against what another program found in it: exactly, in integer nanoseconds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gpu_traces import FACTS, TRACES, gpu_reel
from torchreel.ingest.kineto.categories import HOST
from torchreel.reel import Reel

pytestmark = pytest.mark.skipif(not TRACES, reason="there are no real traces: name their directory in TORCHREEL_TRACES")


def rows(reel: Reel, query: str) -> list[dict[str, Any]]:
    return reel.sql(query).to_pylist()


def value(reel: Reel, query: str) -> Any:
    (row,) = rows(reel, query)
    return next(iter(row.values()))


@pytest.fixture(params=TRACES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_activities(name: str) -> None:
    reel, facts = gpu_reel(name), FACTS[name]
    found = rows(reel, "select kind, count(*) as n, sum(dur_ns) as ns from kernels where kind <> 'other' group by 1")
    assert {row["kind"]: row["n"] for row in found} == facts["activities"]
    assert sum(row["ns"] for row in found) == facts["device_ns"]
    named = value(reel, "select count(distinct name) from kernels where kind <> 'other'")
    assert named == facts["kernel_names"]
    linked = value(reel, "select count(*) from kernels where launch is not null and kind <> 'other'")
    assert linked == facts["with_launch"]
    assert value(reel, "select count(*) from ops where kind in ('runtime', 'driver')") == facts["calls"]


def test_kernels_by_name(name: str) -> None:
    query = """
        select name, count(*) as count, sum(dur_ns)::bigint as sum_ns, min(dur_ns) as min_ns, max(dur_ns) as max_ns
        from kernels group by 1
    """
    found = {row["name"]: row for row in rows(gpu_reel(name), query)}
    for fact in FACTS[name]["by_kernel"]:
        assert found[fact["name"]] == fact


def test_kernels_by_op(name: str) -> None:
    query = """
        select o.name, count(*) as count, sum(k.dur_ns)::bigint as sum_ns
        from kernels k left join ops o on o.id = k.op and o.kind <> 'range' where k.kind <> 'other' group by 1
    """
    found = {row["name"]: row for row in rows(gpu_reel(name), query)}
    for fact in FACTS[name]["by_op"]:
        assert found[fact["name"]] == fact


def test_calls(name: str) -> None:
    reel, facts = gpu_reel(name), FACTS[name]
    assert value(reel, "select count(*) from ops where kind in ('python', 'module')") == facts["python_functions"]
    assert value(reel, "select count(*) from ops where kind in ('op', 'backward', 'range')") == facts["cpu_calls"]
    assert value(reel, "select count(*) from steps") == facts["step_count"]


def test_copies(name: str) -> None:
    query = """
        select coalesce(direction, 'Memset') as direction, count(*) as count, coalesce(sum(bytes), 0)::bigint as bytes,
        sum(dur_ns)::bigint as ns from kernels where kind in ('copy', 'set') group by 1
    """
    found = {row.pop("direction"): row for row in rows(gpu_reel(name), query)}
    assert found == FACTS[name]["copies"]


def test_every_slice_is_in_one_table(name: str) -> None:
    reel = gpu_reel(name)
    counted = {key: count for key, count in FACTS[name]["categories"].items() if key.startswith("X:")}
    slices = sum(counted.values()) - counted.get("X:Trace", 0)
    tables = ("ops", "kernels", "syncs", "device_ranges")
    found = sum(value(reel, f"select count(*) from {table}") for table in tables)
    found += value(reel, 'select count(*) from (select distinct "range", start_ns, dur_ns from kernel_counters)')
    assert found == slices
    hosts = sum(count for key, count in counted.items() if key.removeprefix("X:") in HOST)
    assert value(reel, "select count(*) from ops") == hosts


def test_collectives(name: str) -> None:
    query = """
        select coalesce(c.name, 'None') as name, count(*) as count, sum(k.dur_ns)::bigint as ns
        from kernels k join collectives c on c.id = k.collective group by 1
    """
    found = {row.pop("name"): row for row in rows(gpu_reel(name), query)}
    assert found == FACTS[name]["collectives"]


def test_memory(name: str) -> None:
    query = """
        select device, count(*) as n, max(total) as peak, max(reserved) as reserved from allocs group by 1
    """
    found = {row.pop("device"): row for row in rows(gpu_reel(name), query)}
    for device, fact in FACTS[name].get("memory", {}).items():
        row = found.pop("cpu" if device == "cpu" else f"cuda:{device}")
        assert {key: row[key] for key in fact} == fact
    assert found == {}


def test_modules(name: str) -> None:
    """The facts know modules around a launch; a kernel of backward has that of the forward call besides."""
    facts = FACTS[name].get("by_module", [])
    if not facts:
        return
    query = """
        with launches as (select k.id, l.thread, l.start_ns, k.dur_ns, k.module
            from kernels k left join ops l on l.id = k.launch)
        select around, count(*) as count, sum(dur_ns)::bigint as sum_ns, count(module) as known from (
            select l.id, any_value(l.dur_ns) as dur_ns, any_value(l.module) as module, arg_max(m.name, m.id) as around
            from launches l left join ops m on m.kind = 'module' and m.thread = l.thread
                and m.start_ns <= l.start_ns and l.start_ns < m.start_ns + m.dur_ns
            group by l.id) group by 1
    """
    found = {row.pop("around"): row for row in rows(gpu_reel(name), query)}
    for fact in facts:
        row = found[fact["name"]]
        assert (row["count"], row["sum_ns"]) == (fact["count"], fact["sum_ns"])
        assert row["known"] == row["count"] or fact["name"] is None


def test_the_process_and_its_source(name: str) -> None:
    reel, facts = gpu_reel(name), FACTS[name]
    (process,) = reel.process_rows()
    if "rank" in facts:
        assert (process["rank"], process["world_size"]) == (facts["rank"], facts["world_size"])
    assert process["complete"] and process["lost_events"] == 0
    source = reel.meta["source"]
    assert {key: str(source.get(key)) for key in facts["meta"]} == {k: str(v) for k, v in facts["meta"].items()}
    models = {each.get("name") for each in source.get("deviceProperties", [])}
    assert models == set(facts["device_names"])
    used = {row["model"] for row in rows(reel, "select model from devices where api is not null")} - {None}
    assert used <= models or not models
    assert json.loads(json.dumps(source)) == source
