"""Memory within the calls of a model."""

from __future__ import annotations

import gc

import torch
from torch import Tensor

from tests.edge.nets import Calling, Net, batch, on_thread
from tests.record.rows import rows
from torchreel import EdgeProfiler

MIB = 2**20


def zeros(mebibytes: int) -> Tensor:
    return torch.zeros(mebibytes * MIB // 4)


def test_only_allocs_within_the_calls() -> None:
    model = Calling(torch.sin)
    with EdgeProfiler(model, profile_memory=True) as profiler:
        around = torch.zeros(1000)
        x = torch.ones(256)
        model(x)
        on_thread(lambda: torch.zeros(2000))
        more = torch.zeros(3000)
    del around, more
    found = rows(profiler.result(), "select size from allocs where action = 'alloc'")
    assert [row["size"] for row in found] == [1024]


def test_frees_of_what_was_made_outside_are_absent() -> None:
    held = [torch.zeros(1000), torch.zeros(2000)]
    model = Calling(lambda: held.pop().sum())
    with EdgeProfiler(model, profile_memory=True) as profiler:
        model()
        held.clear()
    sizes = {row["size"] for row in rows(profiler.result(), "select size from allocs")}
    assert sizes & {4000, 8000} == set()
    assert rows(profiler.result(), "select min(total) as n from allocs")[0]["n"] >= 0


def test_an_output_that_is_freed_after_the_call() -> None:
    model = Calling(lambda: torch.zeros(1024))
    with EdgeProfiler(model, profile_memory=True) as profiler:
        output = model()
        del output
        gc.collect()
    found = rows(profiler.result(), "select action, size, total, op from allocs order by id")
    assert [(row["action"], row["size"], row["total"]) for row in found] == [("alloc", 4096, 4096), ("free", 4096, 0)]
    assert found[0]["op"] is not None
    assert found[1]["op"] is None


def test_an_output_that_is_freed_on_another_thread() -> None:
    model = Calling(lambda: torch.zeros(1024))
    with EdgeProfiler(model, profile_memory=True) as profiler:
        held = [model()]
        on_thread(lambda: held.clear())
    found = rows(profiler.result(), "select action, total from allocs order by id")
    assert [(row["action"], row["total"]) for row in found] == [("alloc", 4096), ("free", 0)]


def test_the_peak_of_a_known_program() -> None:
    def forward() -> Tensor:
        first = zeros(3)
        second = zeros(5)
        del first
        third = zeros(4)
        del second
        return third

    model = Calling(forward)
    with EdgeProfiler(model, profile_memory=True) as profiler:
        around = zeros(50)
        output = model()
        del output
        model()
    del around
    found = rows(profiler.result(), "select total from allocs where size >= 1048576 order by id")
    once = [3, 8, 5, 9, 4, 0]
    assert [row["total"] // MIB for row in found] == 2 * once


def test_totals_are_never_negative_and_end_with_what_is_held() -> None:
    net = Net()
    held = []
    with torch.no_grad(), EdgeProfiler(net, profile_memory=True) as profiler:
        for _ in range(20):
            held.append(net(batch()))
    totals = [row["total"] for row in rows(profiler.result(), "select total from allocs order by id")]
    assert min(totals) >= 0
    assert totals[-1] == 20 * 2 * 2 * 4


def test_ops_know_what_they_allocated() -> None:
    model = Calling(lambda x: x.sin().exp())
    with EdgeProfiler(model, profile_memory=True) as profiler:
        model(torch.ones(256))
    found = rows(profiler.result(), "select name, alloc_bytes, self_alloc_bytes from ops where kind = 'op' order by id")
    assert [tuple(row.values()) for row in found] == [("aten::sin", 1024, 1024), ("aten::exp", 1024, 1024)]


def test_not_asked_for_there_are_none() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
    assert profiler.result().allocs.num_rows == 0


def test_memory_for_one_of_two_profilers_only() -> None:
    first, second = Calling(lambda: torch.zeros(1000)), Calling(lambda: torch.zeros(2000))

    def other() -> int:
        with EdgeProfiler(second) as inner:
            second()
        return inner.result().allocs.num_rows

    with EdgeProfiler(first, profile_memory=True) as profiler:
        first()
        assert on_thread(other) == 0
        first()
    sizes = {row["size"] for row in rows(profiler.result(), "select size from allocs where action = 'alloc'")}
    assert sizes == {4000}
