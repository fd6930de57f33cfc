"""Collectives inside graphed functions: two processes, gloo, the same results as eager on both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.graphs.programs.ranks import run_ranks

# Each is called ten times, eagerly and graphed, in one pair of processes.
_COLLECTIVES = """
import torch.distributed._functional_collectives as functional

def all_reduce(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1

def all_reduce_waited_for_later(x):
    y = x * 2
    work = dist.all_reduce(y, dist.ReduceOp.MAX, async_op=True)
    z = x.sin()
    work.wait()
    return y + z

def all_reduce_of_an_input(x):
    dist.all_reduce(x)
    return x.sum()

def all_gather_into_tensor(x):
    everyone = torch.empty(600)
    dist.all_gather_into_tensor(everyone, x + 1)
    return everyone * 2

def all_gather_to_a_list(x):
    everyone = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(everyone, x + 1)
    return everyone[0] - everyone[1]

def broadcast_and_barrier(x):
    y = x * (rank + 1)
    dist.broadcast(y, 1)
    dist.barrier()
    return (y + x).exp()

def reduce_scatter_and_all_to_all(x):
    half, turned = torch.empty(150), torch.empty(300)
    dist.reduce_scatter(half, [x[:150] * 2, x[150:] * 3])
    dist.all_to_all_single(turned, x + 1)
    return half.sum() * turned

def functional_collectives(x):
    total = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
    everyone = functional.all_gather_tensor(x.cos(), 0, dist.group.WORLD)
    return total + everyone[:300] * everyone[300:]

def reduce_scatter_that_gloo_finishes_later(x):
    half = torch.empty(150)
    dist.reduce_scatter_tensor(half, x * 2)
    return half.exp()

def messages_between_two_ranks(x):
    y = torch.empty_like(x)
    works = [dist.isend(x, 1 - rank), dist.irecv(y, 1 - rank)]
    for work in works:
        work.wait()
    return y * 2

def number_after_a_collective(x):
    y = x * 1
    dist.all_reduce(y)
    return y + 1 if x[0].item() > 0 else y - 1
"""
_REPLAYED = [
    "all_reduce",
    "all_reduce_waited_for_later",
    "all_reduce_of_an_input",
    "all_gather_into_tensor",
    "all_gather_to_a_list",
    "broadcast_and_barrier",
    "reduce_scatter_and_all_to_all",
]
_EAGER = {
    "functional_collectives": "AsyncCollectiveTensor",
    "reduce_scatter_that_gloo_finishes_later": "does a part of its work when it is waited for",
    "messages_between_two_ranks": "waits for one other rank",
    # A guard that fails on one rank would run the collective twice there, and the other would wait for ever.
    "number_after_a_collective": "in which other ranks take part",
}
_CALLS = """
import json
for name in names:
    function = globals()[name]
    fast = graphed(function)
    same = []
    for _ in range(10):
        x = torch.randn(300)
        mine = x.clone()
        expected = function(mine)
        same.append(torch.equal(fast(x), expected) and torch.equal(x, mine))
    shown = status(fast)
    print(json.dumps([name, all(same), shown.replays, [skip.reason for skip in shown.skips]]), flush=True)
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """For each rank, by function: whether all results were right, how many calls were replayed, and skips."""
    names = f"names = {[*_REPLAYED, *_EAGER]}"
    said = run_ranks(f"{names}\n{_COLLECTIVES}{_CALLS}", tmp_path_factory.mktemp("ranks"))
    return [{row[0]: row[1:] for row in map(json.loads, lines.splitlines())} for lines in said]


@pytest.mark.parametrize("function", _REPLAYED)
def test_collectives_are_replayed(function: str, calls: list[dict[str, Any]]) -> None:
    assert [rank[function] for rank in calls] == [[True, 8, []]] * 2


@pytest.mark.parametrize(("function", "reason"), _EAGER.items())
def test_what_cannot_be_replayed_runs_eagerly(function: str, reason: str, calls: list[dict[str, Any]]) -> None:
    for rank in calls:
        right, replays, skips = rank[function]
        assert right and replays == 0
        assert len(skips) == 1 and reason in skips[0]


_STEPS = """
import copy
from torch.nn.parallel import DistributedDataParallel

def averaging(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(2)
        optimizer.step()
        return loss.detach()
    return step

def parallel(model, **options):
    outer = DistributedDataParallel(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    def step(x, y):
        optimizer.zero_grad()
        loss = (outer(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step

def check(make, model, sizes=(4,) * 10, **options):
    other = copy.deepcopy(model)
    fast, slow = graphed(make(model), **options), make(other)
    torch.manual_seed(rank)
    for turn, size in enumerate(sizes):
        x, y = torch.randn(size, 8), torch.randn(size, 1)
        assert torch.equal(fast(x, y), slow(x, y)), turn
        assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values())), turn
    return status(fast)
"""


def test_a_training_step_that_averages_its_gradients(tmp_path: Path) -> None:
    said = run_ranks(
        _STEPS
        + """
torch.manual_seed(3)
print(check(averaging, nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))).replays)
""",
        tmp_path,
    )
    assert said == ["8\n", "8\n"]


def test_a_step_of_ddp_is_right(tmp_path: Path) -> None:
    """It is replayed once its buckets are built, at its second call."""
    said = run_ranks(
        _STEPS
        + """
torch.manual_seed(3)
normed = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 1))
shown = check(parallel, copy.deepcopy(normed))
assert shown.replays or shown.skips, shown
shown = check(parallel, copy.deepcopy(normed), warm_up=2)
assert shown.skips and "modules_buffers" in shown.skips[0].reason, shown  # which it lists anew before each forward
plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
shown = check(parallel, plain, warm_up=2)
assert shown.replays == 7, shown
sizes = [4] * 6 + [3, 4, 3, 4, 3, 3, 4, 3, 4]  # eager steps between those that are replayed
for views in (False, True):
    shown = check(lambda model: parallel(model, gradient_as_bucket_view=views), copy.deepcopy(normed), sizes, warm_up=2)
    assert shown.replays or shown.skips, shown
print("done")
""",
        tmp_path,
    )
    assert said == ["done\n", "done\n"]


@pytest.mark.long
def test_torch_compile_with_a_collective(tmp_path: Path) -> None:
    said = run_ranks(
        """
def function(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1

compiled = torch.compile(function, backend="torchreel")
for turn in range(6):
    x = torch.randn(300)
    assert torch.equal(compiled(x), function(x)), turn
print(status(compiled).replays > 0)
""",
        tmp_path,
    )
    assert said == ["True\n", "True\n"]
