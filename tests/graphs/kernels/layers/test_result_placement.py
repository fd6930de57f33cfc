"""Ops without out= make their results where these belong, and nobody else sees that memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchreel
from tests.alone import run_alone
from tests.graphs.kernels.op_calls import bits
from torchreel import graphs

_CALLS = 6


def held_to_eager(function: Callable[..., Any], make: Callable[[], tuple[Tensor, ...]]) -> Any:
    graphed = torchreel.graphed(function)
    held = []  # outputs stay what they were, whatever runs later
    for seed in range(_CALLS):
        torch.manual_seed(seed)
        given = make()
        wanted = function(*given)
        held.append((graphed(*given), wanted))
        for found, wanted in held[-2:]:
            assert bits(found) == bits(wanted)
    assert graphed.replays() > 0, graphs.status(graphed)
    return graphed


def convnet(*, channels_last: bool = False) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs in (3, 16, 16):
        layers += [nn.Conv2d(inputs, 16, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(16, 8, 3, stride=2), nn.AvgPool2d(2)).eval()
    return model.to(memory_format=torch.channels_last) if channels_last else model


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@torch.no_grad()
def test_convolutions_of_several_pictures(channels_last: bool, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    form = torch.channels_last if channels_last else torch.contiguous_format
    graphed = held_to_eager(
        convnet(channels_last=channels_last), lambda: (torch.randn(4, 3, 32, 32).contiguous(memory_format=form),)
    )
    torch.set_num_threads(before)
    assert graphs.status(graphed).nodes[0].layers["boxed"] == 4


def test_a_convnet_is_trained() -> None:
    def trained(graph: bool) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(convnet(), nn.Flatten(), nn.Linear(8 * 7 * 7, 4)).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(seen: Tensor, wanted: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(seen), wanted)
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = torchreel.graphed(step) if graph else step
        losses = [bits(call(torch.randn(4, 3, 32, 32), torch.randn(4, 4))) for _ in range(_CALLS)]
        return [*losses, *(bits(parameter) for parameter in model.parameters())]

    assert trained(True) == trained(False)


@torch.no_grad()
def test_ops_with_several_results_and_with_blocks_of_the_same_size() -> None:
    def function(x: Tensor) -> Tensor:
        values, indices = torch.unique_consecutive(x, dim=0, return_inverse=True)
        q, r = torch.linalg.qr(values.double())
        u, s, v = torch.linalg.svd(r, full_matrices=False)
        return (q @ u * s @ v).float() + indices[:, None] + torch.nn.functional.pad(x, (1, 1), "reflect")[:, 1:-1]

    held_to_eager(function, lambda: (torch.randn(96, 64),))


_KEPT = """
import torch
from torch.library import Library
from torchreel import _graphs

kept, met, runs, library = [], [], 0, Library("aten", "IMPL")

def roll(x, shifts, dims=()):
    scratch = x * 2
    result = x + shifts[0]
    met.append(result.data_ptr())
    if runs >= {first}:
        kept.append({what})
    return result

library.impl("roll", roll, "CPU")
x, place = torch.randn(128, 64), torch.empty(128, 64)
kernel = _graphs.kernel("aten::roll", [x, [3], []], [place], "boxed")
wanted = []
for runs in range(8):
    x.normal_()
    kernel.run()
    assert torch.equal(place, x + 3), runs
    if runs >= {first}:
        wanted.append({expected})
for one, other in zip(kept, wanted, strict=True):
    assert torch.equal(one, other)
    one.zero_()
assert torch.equal(place, x + 3)
assert place.data_ptr() not in met  # Python may hold what it gave
"""


@pytest.mark.parametrize("first", [0, 1, 4])
@pytest.mark.parametrize(("what", "expected"), [("result", "x + 3"), ("result[1:]", "x[1:] + 3")])
def test_an_op_that_keeps_what_it_gives(what: str, expected: str, first: int) -> None:
    script = _KEPT.format(what=what, expected=expected, first=first)
    run_alone(script)


_PLACED = """
import torch, torchreel
from torchreel import _graphs

x, weight, bias = torch.randn(4, 16, 32, 32), torch.randn(16, 16, 3, 3), torch.randn(16)
place = torch.empty_like(x)
given = [x, weight, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 1]
kernel = _graphs.kernel("aten::convolution", given, [place], "boxed")

def blocks(run):
    name = f"{len(counts)}.reel"
    with torchreel.record(name, memory=True):
        run()
    asked = "select count(*) as n from allocs where action = 'alloc' and size = 262144"
    return torchreel.load(name).sql(asked).to_pylist()[0]["n"]

counts = []
for run in (lambda: torch.conv2d(x, weight, bias, padding=1), kernel.run, kernel.run, kernel.run):
    counts.append(blocks(run))
    x.normal_()
    kernel.run()
    assert torch.equal(place, torch.conv2d(x, weight, bias, padding=1))
assert counts[1] <= counts[0] and counts[2] == counts[3] < counts[0], counts
"""


def test_a_result_at_its_place_is_no_block(tmp_path: Path) -> None:
    run_alone(_PLACED, directory=tmp_path)


_RECORDED = """
import torch, torchreel, sys
x = torch.randn(4, 16, 32, 32)
model = torch.nn.Conv2d(16, 16, 3, padding=1).eval()
fast = torchreel.graphed(model)

def replay(times):
    with torch.no_grad():
        for _ in range(times):
            assert torch.equal(fast(x), model(x))

order = sys.argv[1]
if order == "graph first":
    replay(6)
with torchreel.record("run.reel", memory=True) as recorder:
    replay(3)
    kept = torch.ones(1 << 20)
torchreel.memory.record_history()
replay(3)
torchreel.memory.use_caching_allocator()
replay(6)
del kept
reel = torchreel.load("run.reel")
rows = reel.sql("select action, count(*) as n from allocs where size = 4194304 group by action order by action")
assert rows.to_pylist() == [{"action": "alloc", "n": 1}], rows
assert fast.replays() >= 6
"""


@pytest.mark.parametrize("order", ["graph first", "recording first"])
def test_memory_is_recorded_and_cached_beside_it(order: str, tmp_path: Path) -> None:
    run_alone(_RECORDED, order, directory=tmp_path)
