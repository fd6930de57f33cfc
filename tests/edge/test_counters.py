"""Counters of the hardware and of the kernel, for each op of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.edge.nets import Calling, Net, batch, calls, on_thread
from tests.record.rows import rows
from torchreel import EdgeProfiler, _core, current_edge_profiler
from torchreel.errors import EdgeError, OptionError, UnavailableError

HARDWARE = ["cycles", "instructions", "cache-misses", "branch-misses"]
SOFTWARE = ["task-clock", "page-faults"]
forbidden = [name for name in HARDWARE if _core.counter_problem(name)]
has_software = pytest.mark.skipif(
    any(_core.counter_problem(name) for name in SOFTWARE), reason="the kernel allows no counters"
)


@pytest.mark.parametrize("counter", HARDWARE)
def test_a_counter_that_cannot_be_had_is_refused_when_the_profiler_is_made(counter: str) -> None:
    if counter not in forbidden:
        pytest.skip(f"this machine has {counter}")
    net = Net()
    with pytest.raises(UnavailableError, match=rf"The hardware counter '{counter}' cannot be had: .+\. Record without"):
        EdgeProfiler(net, events=[counter])
    assert current_edge_profiler() is None
    assert not _core.recording()
    assert not net._forward_hooks
    with EdgeProfiler(net) as profiler:
        net(batch())
    assert len(calls(profiler.result())) == 1


def test_a_counter_that_is_refused_harms_no_profiler_that_runs() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        with pytest.raises((UnavailableError, OptionError)):
            on_thread(lambda: EdgeProfiler(Net(), events=["no such counter"]))
        net(batch())
    assert profiler.result().ops.column("name").to_pylist().count("aten::linear") == 4


def test_a_counter_that_does_not_exist() -> None:
    with pytest.raises(OptionError, match=r"There is no hardware counter 'cyclse': there are .*cycles"):
        EdgeProfiler(Net(), events=["cyclse"])


@has_software
def test_values_of_each_op(tmp_path: Path) -> None:
    def forward() -> None:
        for _ in range(3):
            torch.zeros(2**20).exp_()

    model = Calling(forward)
    with EdgeProfiler(model, tmp_path / "run.json", events=SOFTWARE, with_modules=True) as profiler:
        torch.zeros(2**20)
        model()
        model()
    reel = profiler.result()
    counted = rows(
        reel,
        """select o.id, o.name, o.parent, c.name as counter, c.value from ops o join counters c on c.op = o.id""",
    )
    assert {row["counter"] for row in counted} == set(SOFTWARE)
    assert {row["id"] for row in counted} == set(reel.ops.column("id").to_pylist())
    assert all(row["value"] >= 0 for row in counted)
    for counter in SOFTWARE:
        values = {row["id"]: row["value"] for row in counted if row["counter"] == counter}
        for parent in {row["parent"] for row in counted if row["parent"] is not None}:
            below = {row["id"] for row in counted if row["parent"] == parent}
            assert values[parent] >= sum(values[id] for id in below)
    roots = [row["value"] for row in counted if row["parent"] is None and row["counter"] == "task-clock"]
    assert len(roots) == 2
    assert min(roots) > 0
    json.loads((tmp_path / "run.json").read_text())


@has_software
def test_profilers_at_the_same_time_count_the_same() -> None:
    net, other = Net(), Net()

    def second(events: list[str]) -> int:
        with EdgeProfiler(other, events=events) as profiler:
            other(batch())
        return profiler.result().counters.num_rows

    with EdgeProfiler(net, events=SOFTWARE) as profiler:
        net(batch())
        with pytest.raises(EdgeError, match=r"counts task-clock, page-faults, and those that run at the same time"):
            on_thread(lambda: second([]))
        assert on_thread(lambda: second(SOFTWARE)) > 0
        net(batch())
    ops = profiler.result().ops.num_rows
    assert profiler.result().counters.num_rows == 2 * ops
