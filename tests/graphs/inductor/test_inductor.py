"""Kernels that Inductor generates for runs of ops: the same results, whatever becomes of the process that compiles."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tests.alone import run_alone
from tests.waiting import until
from torchreel import graphed
from torchreel.errors import OptionError
from torchreel.graphs import status, wait

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler")

_PATIENCE = 400.0  # seconds, for a machine that has other things to do
_CALLS = 8  # of which the first are checks

Function = Callable[..., Any]


def special(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers, with all kinds among them that rounding and comparing treat in a way of their own."""
    found = (torch.randn(sizes) * 3).to(dtype)
    flat = found.view(-1)
    for place, value in enumerate((float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-41, -1e-41, 3e38)):
        flat[place * 5 % flat.numel()] = value
    flat[-1] = -0.0  # in what is left over of the last vector
    return found


def same(one: Any, other: Any) -> bool:
    """All bits, but those of what is no number."""
    return all(_same(a, b) for a, b in zip(tree_leaves(one), tree_leaves(other), strict=True))


def _same(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or one.stride() != other.stride():
        return False
    numbers = ~(one.isnan() & other.isnan())
    zeros = torch.signbit(one) == torch.signbit(other) if one.is_floating_point() else True
    return bool((((one == other) & zeros) | ~numbers).all())


def generated(fast: Any) -> int:
    """Kernels of Inductor in its graphs."""
    return sum(node.layers.get("inductor", 0) for node in status(fast).nodes)


def compiled(functions: dict[str, tuple[Function, Callable[[], tuple[Any, ...]]]], **options: Any) -> dict[str, Any]:
    """Graphed, recorded, and with all kernels there."""
    found = {}
    for name, (function, make) in functions.items():
        found[name] = graphed(function, inductor="always", **options)
        for _ in range(3):
            found[name](*make())
    for name, fast in found.items():
        assert wait(fast, _PATIENCE), name
    return found


def chain(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    a = (x + y) * 2.5
    b = a.relu() - y / 3
    return b.abs() + 0.1, -a


def compared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    mask = (x > 0.1) & (y <= x)
    found = torch.where(mask, x * y, y - x)
    return found.masked_fill(x != x, 0.5), mask


def own_in_place(x: Tensor, y: Tensor) -> Tensor:
    a = x * y
    a[..., :2].add_(1).mul_(3)
    a.chunk(2, -1)[0].sub_(0.5)
    return a + 1


def broadcast(x: Tensor, y: Tensor) -> Tensor:
    return ((x + y[0]) * y.sum() - x.t().contiguous().t()).reciprocal() / 7


def in_double(x: Tensor, y: Tensor) -> Tensor:
    return ((x.double() * 0.1 + y.double()) / 3).float() - x


EXACT: dict[str, Function] = {
    "chain": chain,
    "compared": compared,
    "own in place": own_in_place,
    "broadcast": broadcast,
    "in double": in_double,
}
SHAPES = [pytest.param((33, 127)), *(pytest.param(shape, marks=pytest.mark.long) for shape in [(1, 4), (3, 64)])]


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_exact_kernels_give_the_bits_of_eager(shape: tuple[int, int]) -> None:
    functions = {name: (function, lambda: (special(*shape), special(*shape))) for name, function in EXACT.items()}
    for name, fast in compiled(functions).items():
        function, make = functions[name]
        for _ in range(_CALLS):
            given = make()
            assert same(fast(*given), function(*given)), name
        assert generated(fast) >= 1, status(fast)


# Each with each, in various places of vectors and of what is left over behind the last.
VALUES = (0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 3.0, 1e-41, -1e-41, 1e-20, 3e38, -3e38, 0.5, 1.5, 2.5, -0.5, 16777217.0)
VALUES += (float("inf"), -float("inf"), float("nan"), 7.25, -1e10, 1.1754944e-38)


def every_exact_op(x: Tensor, y: Tensor) -> list[Tensor]:
    found = [x + y, x - y, x * y, x / y, x + 0.3, x - 3, 2 - x, x * 0.1, x / 0.7, 1 / x, -x, x.abs(), x.relu()]
    found += [x.floor(), x.ceil(), x.trunc(), x**2, x.reciprocal(), x.clone(), x.double(), x.double().mul(y).float()]
    found += [x == y, x != y, x < y, x <= y, x > y, x >= y, x == 0.1, x != 3, x < 0, x <= 0.5, x > -0.0, x >= 1]
    found += [torch.where(x > y, x, y), x.masked_fill(x == y, 0.3), (x > y).logical_and(x > 0), (x > y) | (y < 0)]
    found += [torch.ops.aten.threshold_backward(x, y, 0.5), (x > y).logical_not(), x.to(torch.bool), (x > y).float()]
    return found


@torch.no_grad()
def test_every_exact_op_on_every_kind_of_number() -> None:
    pairs = torch.cartesian_prod(torch.tensor(VALUES), torch.tensor(VALUES))
    given = [(pairs[shift:, 0].contiguous(), pairs[shift:, 1].contiguous()) for shift in (0, 5, 3)]
    functions = {str(place): (every_exact_op, lambda one=one: one) for place, one in enumerate(given)}
    for name, fast in compiled(functions).items():
        for _ in range(_CALLS):
            assert same(fast(*given[int(name)]), every_exact_op(*given[int(name)]))
        assert generated(fast) >= 1, status(fast)


@torch.no_grad()
def test_two_threads_and_many_elements() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fast = compiled({"": (chain, lambda: (special(301, 517), special(301, 517)))})[""]
        for _ in range(_CALLS):
            given = special(301, 517), special(301, 517)
            assert same(fast(*given), chain(*given))
        assert generated(fast) >= 1, status(fast)
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def test_what_is_written_in_place_is_written_once() -> None:
    state, own = torch.zeros(70), torch.zeros(70)

    def step(x: Tensor, state: Tensor) -> Tensor:
        x.mul_(2).add_(1)
        state.mul_(0.5).add_(x).sub_(0.25)
        return state * x

    fast = graphed(lambda x: step(x, state), inductor="always")
    for call in range(4 + _CALLS):
        if call == 4:
            assert wait(fast, _PATIENCE)
        given = torch.randn(70)
        other = given.clone()
        assert same((fast(given), given, state), (step(other, own), other, own)), call
    assert generated(fast) >= 1, status(fast)


def test_forward_and_backward() -> None:
    torch.manual_seed(0)
    weight = torch.randn(65, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        return ((x + weight).relu() * x - weight * 0.5).abs() / 3

    fast = graphed(loss, inductor="always")
    for call in range(4 + _CALLS):
        if call == 4:
            assert wait(fast, _PATIENCE)
        x = torch.randn(9, 65)
        (wanted,) = torch.autograd.grad(loss(x).sum(), weight)
        found = fast(x)
        assert same(found.detach(), loss(x).detach()), call
        (gradient,) = torch.autograd.grad(found.sum(), weight)
        assert same(gradient, wanted), call
    nodes = status(fast).nodes
    assert {node.part for node in nodes if node.layers.get("inductor")} == {"forward", "backward"}, status(fast)


@torch.no_grad()
def test_within_tolerances() -> None:
    torch.manual_seed(0)
    cell = nn.LSTMCell(24, 24).eval()
    norm = nn.LayerNorm(100).eval()
    functions: dict[str, tuple[Function, Callable[[], tuple[Any, ...]]]] = {
        "gelu": (lambda x: nn.functional.gelu(norm(x)) * 1.5, lambda: (torch.randn(7, 100),)),
        "softmax": (lambda x: torch.softmax(x * 0.3 + 1, -1).sum(-1), lambda: (torch.randn(7, 100),)),
        "cell": (lambda x, h, c: cell(x, (h, c)), lambda: tuple(torch.randn(3, 24) for _ in range(3))),
        "bfloat16": (lambda x: ((x * 0.7).tanh() * 0.5).exp(), lambda: (torch.randn(50).bfloat16(),)),
    }
    for name, fast in compiled(functions, exact=False).items():
        function, make = functions[name]
        for _ in range(_CALLS):
            given = make()
            torch.testing.assert_close(fast(*given), function(*given))
        assert generated(fast) >= 1, status(fast)


@torch.no_grad()
def test_verify_knows_of_tolerances() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.softmax(x * 0.3 + 1, -1).sum(-1).log()

    fast = compiled({"": (function, lambda: (torch.randn(7, 100),))}, exact=False, verify=2)[""]
    for _ in range(2 * _CALLS):
        given = torch.randn(7, 100)
        torch.testing.assert_close(fast(given), function(given))
    assert generated(fast) >= 1, status(fast)


@pytest.mark.parametrize(
    ("factor", "why"),
    [(1000, "it differs by more than the tolerance"), (100000, "Inductor gives other numbers than the ops themselves")],
    ids=["by its first calls", "by who compiles it"],
)
@torch.no_grad()
def test_a_kernel_that_differs_is_refused(factor: int, why: str) -> None:
    """Eager rounds each result to 16 bits, and may have infinity on the way; generated code keeps 32 in between."""

    def function(x: Tensor) -> Tensor:
        return x * factor / factor + 1

    fast = compiled({"": (function, lambda: (torch.ones(40, dtype=torch.float16),))}, exact=False)[""]
    for _ in range(_CALLS):
        given = (torch.randn(40) * 1000).half()
        assert same(fast(given), function(given))
    assert generated(fast) == 0
    assert why in status(fast).kernels[0]


@torch.no_grad()
def test_clusters_that_are_alike_have_one_kernel() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(5):
            x = (x @ w).relu() * 0.5 - 1
        return x

    fast = compiled({"": (function, lambda: (torch.randn(4, 16), torch.randn(16, 16)))})[""]
    for _ in range(_CALLS):
        given = torch.randn(4, 16), torch.randn(16, 16)
        assert same(fast(*given), function(*given))
    assert len(status(fast).kernels) == 1 and "5 times: in use" in status(fast).kernels[0]


@torch.no_grad()
def test_kernels_that_come_while_threads_replay() -> None:
    fast = graphed(chain, inductor="always")
    over = threading.Event()
    failures: list[str] = []
    calls = [0] * 3

    def work(seed: int) -> None:
        with torch.no_grad():
            random = torch.Generator().manual_seed(seed)
            while not over.is_set():
                given = torch.randn(11, 13, generator=random), torch.randn(11, 13, generator=random)
                if not same(fast(*given), chain(*given)):
                    failures.append("other bits")
                calls[seed] += 1

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    until(fast.recordings)
    assert wait(fast, _PATIENCE)
    before = list(calls)
    until(lambda: all(now > then + 2 * _CALLS for now, then in zip(calls, before, strict=True)))
    over.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert generated(fast) >= 1, status(fast)


def test_torch_compile_takes_the_option() -> None:
    module = torch.compile(chain, backend="torchreel", options={"inductor": "always"})
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(6, 6), torch.randn(6, 6))
        assert wait(module, _PATIENCE)
        for _ in range(_CALLS):
            given = torch.randn(6, 6), torch.randn(6, 6)
            assert same(module(*given), chain(*given))
    assert "in use" in status(module).kernels[0]


def test_options() -> None:
    with pytest.raises(OptionError, match="inductor is 'often'"):
        graphed(chain, inductor="often")  # type: ignore[call-overload]
    with pytest.raises(OptionError, match=r"wait\(\) was given"):
        wait(chain)


SCRIPT = """
    import os, signal, sys, time, torch
    from torchreel import graphed
    from torchreel.graphs import status, wait
    from torchreel.graphs.inductor import queue

    def function(x):
        return ((x + 1).relu() * 3 - x) / 7

    def held(fast, calls=6):
        with torch.no_grad():
            for _ in range(calls):
                x = torch.randn(50)
                assert torch.equal(fast(x), function(x))

    def worker():
        while queue.the_queue()._process is None:
            time.sleep(0.01)
        return queue.the_queue()._process.pid

    fast = graphed(function, inductor="always")
    held(fast)
"""


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_process_that_compiles_is_killed() -> None:
    script = """
    os.killpg(worker(), signal.SIGKILL)
    assert wait(fast, 400)
    held(fast)
    print(status(fast).kernels[0])
    other = graphed(lambda x: function(x), inductor="always")
    held(other)
    assert wait(other, 400)
    held(other)
    print(status(other).kernels[0])
    """
    first, second = run_alone(SCRIPT + script).strip().splitlines()
    assert first.endswith("not used: The process that compiles ended before it answered.")
    assert ": in use" in second


@pytest.mark.parametrize("end", ["", "os._exit(0)"])
def test_the_process_that_compiles_ends_with_its_own(end: str) -> None:
    process = int(
        run_alone(
            SCRIPT
            + f"""
    print(worker(), flush=True)
    {end}
    """
        )
    )
    until(lambda: not is_running(process))


def test_a_child_that_is_forked_while_it_compiles() -> None:
    script = """
    worker()
    child = os.fork()
    if child == 0:
        held(fast)
        assert not wait(fast, 0.1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert wait(fast, 400)
    held(fast)
    print(status(fast).kernels[0])
    """
    assert ": in use" in run_alone(SCRIPT + script)
