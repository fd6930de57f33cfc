"""Every kind of tensor with the caching allocator, and across the switch to it and back."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch

import torchreel
from tests.alone import alone
from tests.memory.state import live, trace
from torchreel import _core, memory

MIB = 2**20


def owned(tensor: torch.Tensor) -> bool:
    return _core.owns(torch._C._data_address(tensor))


@pytest.mark.parametrize("first", [True, False])
@alone
def test_mkldnn_tensors_cross_the_switch(first: bool) -> None:
    # oneDNN's memory is freed by the allocator that is current then, not by the one that made it.
    memory.use_caching_allocator(first)
    tensors = [torch.randn(size).to_mkldnn() for size in (10, 1000, 5 * MIB)]
    memory.use_caching_allocator(not first)
    more = [tensor.to_dense().to_mkldnn() for tensor in tensors]
    assert all(torch.equal(a.to_dense(), b.to_dense()) for a, b in zip(tensors, more, strict=True))
    del tensors
    memory.use_caching_allocator(first)
    del more
    memory.use_caching_allocator(True)
    assert torch.randn(1000).to_mkldnn().to_dense().numel() == 1000


@alone
def test_convolutions_train_across_several_switches() -> None:
    def losses(switches: list[bool]) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for switch in switches:
            memory.use_caching_allocator(switch)
            loss = model(torch.randn(4, 3, 32, 32)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(float(loss))
        return found

    plain = losses([False] * 8)
    assert losses([False, True, True, False, True, False, False, True]) == plain
    assert losses([True] * 8) == plain
    assert losses([True, False] * 4) == plain


@alone
def test_packed_mkldnn_weights_cross_the_switch() -> None:
    from torch.utils import mkldnn

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)).eval()
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = model(images)
        packed = mkldnn.to_mkldnn(model)
        for switch in (True, False, True):
            memory.use_caching_allocator(switch)
            result = packed(images.to_mkldnn()).to_dense()
            torch.testing.assert_close(result, expected)
        memory.use_caching_allocator(False)
        del packed, result


@alone
def test_copy_on_write() -> None:
    for made, written in ((True, True), (True, False), (False, True)):
        memory.use_caching_allocator(made)
        tensor = torch.ones(MIB)
        clones = [tensor._lazy_clone() for _ in range(3)]
        assert all(torch._C._is_cow_tensor(clone) for clone in clones)
        memory.use_caching_allocator(written)
        clones[0].add_(1)
        assert owned(clones[0]) == written
        tensor.zero_()
        assert [float(clone.mean()) for clone in clones] == [2, 1, 1]
        del tensor, clones[0]
        clones[0].mul_(5)
        assert [float(clone.mean()) for clone in clones] == [5, 1]


@alone
def test_tensors_are_resized_across_the_switch() -> None:
    old = torch.arange(1000.0)
    memory.use_caching_allocator()
    new = torch.arange(1000.0)
    old.resize_(MIB)
    assert not owned(old), "a storage keeps its allocator, which is torch's"
    new.resize_(MIB)
    assert owned(new)
    memory.use_caching_allocator(False)
    new.resize_(2 * MIB)
    assert not owned(new), "its allocator is ours, which passes through"
    assert torch.equal(old[:1000], new[:1000]) and torch.equal(new[:1000], torch.arange(1000.0))
    new.untyped_storage().resize_(0)
    del old, new
    memory.use_caching_allocator()
    assert memory.memory_stats()["allocation.all.current"] == 0


@alone
def test_shared_memory_goes_and_comes() -> None:
    tensor = torch.arange(1000.0)
    memory.use_caching_allocator()
    other = torch.arange(1000.0)
    for each in (tensor, other):
        each.share_memory_()
        assert each.is_shared() and not owned(each)
        copy = each.clone()
        assert owned(copy) and torch.equal(copy, torch.arange(1000.0))
    assert memory.memory_stats()["allocation.all.current"] == 1


@alone
def test_numpy_and_torch_use_each_others_memory() -> None:
    memory.use_caching_allocator()
    memory.record_history()
    array = numpy.arange(100_000.0)
    tensor = torch.from_numpy(array)
    view = torch.ones(100_000, dtype=torch.float64)
    other = view.numpy()
    address = view.data_ptr()
    del view
    assert other.sum() == 100_000 and live(memory.snapshot())[address] == 800_000, "the array keeps the block"
    other += 1
    assert torch.from_numpy(other).sum() == 200_000
    del other
    assert address not in live(memory.snapshot())
    assert array.sum() == float(tensor.sum())
    buffer = torch.frombuffer(bytearray(b"abcd"), dtype=torch.uint8)
    assert buffer.tolist() == [97, 98, 99, 100]
    for size in (1, 10, 1000, 10**6):
        made = torch.randn(size)
        assert torch.equal(torch.from_numpy(made.numpy().copy()), made)


@alone
def test_files_are_saved_and_loaded(tmp_path: Path) -> None:
    state = {"a": torch.randn(1000), "b": torch.randn(3, 5).bfloat16(), "c": torch.empty(0), "view": torch.randn(9)[2:]}
    torch.save(state, tmp_path / "before.pt")
    memory.use_caching_allocator()
    torch.save(state, tmp_path / "zip.pt")
    torch.save(state, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    for name, options in (
        ("before.pt", {}),
        ("zip.pt", {}),
        ("zip.pt", {"mmap": True}),
        ("legacy.pt", {}),
        ("zip.pt", {"weights_only": False}),
    ):
        loaded = torch.load(tmp_path / name, **options)
        assert all(torch.equal(loaded[key], state[key]) for key in state)
        loaded["a"].add_(1)
        memory.use_caching_allocator(False)
        del loaded
        memory.use_caching_allocator()


@alone
def test_storages_quantized_and_sparse_tensors() -> None:
    memory.use_caching_allocator()
    storage = torch.UntypedStorage(1000)
    storage.fill_(7)
    storage.resize_(5000)
    assert storage[999] == 7
    assert torch.tensor(storage.clone(), dtype=torch.uint8)[:1000].sum() == 7000
    quantized = torch.quantize_per_tensor(torch.randn(8, 100), 0.1, 0, torch.qint8)
    assert torch.equal(quantized.clone().int_repr(), quantized.int_repr())
    sparse = torch.eye(200).to_sparse()
    assert float((sparse @ torch.ones(200, 3)).sum()) == 600
    assert float(sparse.to_sparse_csr().to_dense().sum()) == 200
    nested = torch.nested.nested_tensor([torch.ones(3), torch.ones(5)])
    assert float(nested.to_padded_tensor(0).sum()) == 8
    assert torch.complex(torch.ones(10), torch.ones(10)).abs().square().sum().round() == 20
    memory.use_caching_allocator(False)
    del storage, quantized, sparse, nested


@alone
def test_torchs_profiler_sees_the_memory_of_cpu_tensors() -> None:
    from torch.profiler import ProfilerActivity, profile

    memory.use_caching_allocator()
    torch.ones(5)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        tensor = torch.empty(3 * MIB, dtype=torch.uint8)
        small = torch.empty(500, dtype=torch.uint8)
        del tensor
    made = {event.key: event.self_cpu_memory_usage for event in profiler.key_averages()}
    assert made["aten::empty"] == 3 * MIB + 500
    freed = [event for event in profiler.profiler.kineto_results.events() if event.nbytes() == -3 * MIB]
    assert len(freed) == 1
    assert small.numel() == 500


@alone
def test_a_recording_has_the_same_allocs_with_either_allocator(tmp_path: Path) -> None:
    def step(model: torch.nn.Module) -> None:
        model(torch.ones(16, 100)).square().mean().backward()
        model.zero_grad()

    model = torch.nn.Sequential(torch.nn.Linear(100, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 10))
    step(model)
    found = {}
    for allocator in ("system", "caching"):
        with torchreel.record(tmp_path / f"{allocator}.reel", memory=True, allocator=allocator):
            step(model)
        rows = torchreel.load(tmp_path / f"{allocator}.reel").sql(
            "select action, size, o.name from allocs a left join ops o on o.id = a.op and o.process = a.process "
            "where action in ('alloc', 'free') order by a.id"
        )
        found[allocator] = rows.to_pylist() if hasattr(rows, "to_pylist") else rows.fetchall()
    assert found["system"] == found["caching"]
    assert len(found["system"]) > 20


@alone
def test_a_history_and_a_recording_see_the_same(tmp_path: Path) -> None:
    memory.use_caching_allocator()
    memory.record_history()
    with torchreel.record(tmp_path / "a.reel", memory=True):
        memory.record_history(clear_history=True)
        for size in (1000, 2 * MIB, 5000, 40 * MIB):
            torch.empty(size, dtype=torch.uint8)
        events = trace(memory.snapshot())
    reel = torchreel.load(tmp_path / "a.reel")
    rows = [row for row in reel.allocs.to_pylist() if row["size"] in (1000, 2 * MIB, 5000, 40 * MIB)]
    seen = [(row["addr"], row["size"]) for row in rows if row["action"] == "alloc"]
    assert seen == [(event["addr"], event["size"]) for event in events if event["action"] == "alloc"]
