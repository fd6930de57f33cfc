"""Tensors without fixed memory: sparse, quantized and conjugated ones run between the kernels of a graph."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchreel
from tests.tape.outcome import bits
from torchreel import graphs

pytestmark = pytest.mark.filterwarnings("ignore")  # what torch says of sparse and quantized tensors

CALLS = 6


def adjacency(seed: int, size: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, size, generator=generator).relu().to_sparse()


def exactly(value: Tensor) -> Any:
    marks = (value.is_conj(), value.is_neg()) if value.layout == torch.strided else ()
    return value.layout, bits(value), marks


def held_to_eager(function: Callable[..., Tensor], calls: list[tuple[Any, ...]], **options: Any) -> Any:
    graphed = torchreel.graphed(function, **options)
    for place, call in enumerate(calls):
        assert exactly(graphed(*call)) == exactly(function(*call)), f"call {place}"
    return graphed


def dense(count: int = CALLS, size: int = 8) -> list[tuple[Tensor, ...]]:
    return [(torch.randn(size, size),) for _ in range(count)]


A = adjacency(1)
CSR = adjacency(2).to_sparse_csr()
W = torch.randn(8, 4)


def from_values(x: Tensor) -> Tensor:
    values = x[:3, 0] * 2
    made = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]), values, (8,))
    later = (x * 3).exp()  # which may lie where the values lay
    return made.to_dense() + later.sum()


def quantized(x: Tensor) -> Tensor:
    return torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8).dequantize() + 1


def power(x: Tensor) -> Tensor:
    found = torch.fft.fft(x)
    return (found.conj() * found).real.sum(-1) + 1


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "a sparse matrix": lambda x: torch.sparse.mm(A, x + 1) @ W * 2,
    "a matrix of rows": lambda x: (CSR @ (x * 2)).relu() + x,
    "one made of values": from_values,
    "one that is made and summed": lambda x: torch.sparse.sum((x * 2).to_sparse(), 0).to_dense() + x[0],
    "quantized in between": quantized,
    "conjugated": power,
    "the imaginary part of a conjugate": lambda x: torch.fft.fft(x).conj().imag * 2 + x,
    "a conjugate in a product of matrices": lambda x: (torch.fft.fft(x).mH @ torch.fft.fft(x)).abs(),
}
GIVEN: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": lambda x: (x * 2).relu().to_sparse(),
    "quantized": lambda x: torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8),
    "conjugated": lambda x: torch.fft.fft(x * 2).conj(),
    "negated": lambda x: torch.fft.fft(x * 2).conj().imag,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_runs_between_kernels(name: str) -> None:
    with torch.no_grad():
        fast = held_to_eager(FUNCTIONS[name], dense())
    assert fast.replays() == CALLS - 2


@pytest.mark.parametrize("name", GIVEN)
def test_is_given_to_the_caller_and_stays_as_it_is(name: str) -> None:
    function = GIVEN[name]
    fast = torchreel.graphed(function)
    kept = []
    with torch.inference_mode():
        for (x,) in dense():
            kept.append((fast(x), function(x)))
    assert fast.replays() == CALLS - 2
    for got, wanted in kept:
        assert exactly(got) == exactly(wanted)


def test_status_names_the_layer() -> None:
    fast = torchreel.graphed(FUNCTIONS["a sparse matrix"])
    with torch.no_grad():
        for (x,) in dense():
            fast(x)
    assert "1 eager" in str(graphs.status(fast))


def test_sparse_inputs_of_other_numbers_of_elements_replay_and_of_other_sizes_are_another_recording() -> None:
    def product(a: Tensor, x: Tensor) -> Tensor:
        return torch.sparse.mm(a, x * 2) + a.shape[0]

    with torch.no_grad():
        fast = held_to_eager(product, [(adjacency(i), torch.randn(8, 3)) for i in range(CALLS)])
        assert fast.replays() == CALLS - 2
        for i in range(CALLS):
            a, x = adjacency(i, 9), torch.randn(9, 3)
            assert torch.equal(fast(a, x), product(a, x))
    assert len(fast.recordings()) == 2


def test_an_input_is_not_kept() -> None:
    fast = torchreel.graphed(lambda a, x: torch.sparse.mm(a, x))
    with torch.no_grad():
        for i in range(CALLS):
            a = adjacency(i)
            fast(a, torch.randn(8, 3))
    gone = weakref.ref(a)
    del a
    gc.collect()
    assert gone() is None


def test_how_many_elements_it_has_may_differ_from_call_to_call() -> None:
    def largest(x: Tensor) -> Tensor:
        values = x.relu().to_sparse().coalesce().values()
        return values * values.shape[0]

    with torch.no_grad():
        held_to_eager(largest, dense(12, 3))


def test_numbers_that_python_asks_it_for_are_compared() -> None:
    def scaled(a: Tensor) -> Tensor:
        return torch.sparse.sum(a, 0).to_dense() * a._nnz() + (1 if a.is_coalesced() else 2)

    with torch.no_grad():
        held_to_eager(scaled, [(adjacency(i % 3),) for i in range(12)])
        held_to_eager(scaled, [(a if i % 2 else a.coalesce(),) for i, a in enumerate([A + A] * 8)])


def test_another_matrix_in_its_place_is_seen() -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("adjacency", adjacency(1))
            self.linear = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(torch.sparse.mm(self.adjacency, x))

    model = Graph().eval()
    fast = torchreel.graphed(model)
    with torch.no_grad():
        for i in range(12):
            if i == 4:
                model.adjacency = adjacency(7)
            if i == 8:
                model.adjacency.mul_(3)
            x = torch.randn(8, 8)
            assert torch.equal(fast(x), model(x)), i
    assert fast.replays() > 5


def test_a_write_to_a_sparse_tensor_of_others_runs_eagerly() -> None:
    grown = adjacency(3)

    def grow(x: Tensor) -> Tensor:
        grown.mul_(2)
        return torch.sparse.mm(grown, x)

    fast = torchreel.graphed(grow)
    with torch.no_grad():
        before = grown.to_dense()
        for i in range(4):
            x = torch.randn(8, 2)
            got = fast(x)
            assert torch.equal(grown.to_dense(), before * 2 ** (i + 1))
            assert torch.equal(got, torch.sparse.mm(grown, x))
    assert fast.replays() == 0 and "eager: " in str(graphs.status(fast))


@pytest.mark.parametrize("through", ["values", "view"])
def test_a_write_that_a_sparse_tensor_shares_runs_eagerly(through: str) -> None:
    def shared(x: Tensor) -> Tensor:
        values = x[:3, 0] * 2
        made = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]), values, (8,), is_coalesced=True)
        (values if through == "values" else made._values()).add_(1)
        return made.to_dense() + x.sum()

    with torch.no_grad():
        fast = held_to_eager(shared, dense())
    assert fast.replays() == 0 and "may share" in str(graphs.status(fast))


@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, torch.optim.SGD])
def test_a_step_with_sparse_gradients(optimizer: type[torch.optim.Optimizer]) -> None:
    def made() -> tuple[nn.Embedding, Callable[[Tensor], Tensor]]:
        torch.manual_seed(0)
        table = nn.Embedding(20, 4, sparse=True)
        steps = optimizer(table.parameters(), lr=0.1)  # type: ignore[call-arg]

        def step(words: Tensor) -> Tensor:
            steps.zero_grad()
            loss = table(words).pow(2).sum()
            loss.backward()
            steps.step()
            return loss.detach()

        return table, step

    ours, our_step = made()
    theirs, their_step = made()
    fast = torchreel.graphed(our_step)
    for i in range(10):
        words = torch.randint(0, 20, (6,), generator=torch.Generator().manual_seed(i))
        assert bits(fast(words)) == bits(their_step(words)), i
        assert bits(ours.weight) == bits(theirs.weight), i


def test_gradients_through_a_sparse_matrix_and_through_conjugates() -> None:
    weight = torch.randn(8, 4, requires_grad=True)

    def through(x: Tensor) -> Tensor:
        found = torch.fft.fft(torch.sparse.mm(A, x @ weight), dim=0)
        return (found * found.conj()).real.sum()

    fast = torchreel.graphed(through)
    for (x,) in dense():
        (got,) = torch.autograd.grad(fast(x), weight)
        (wanted,) = torch.autograd.grad(through(x), weight)
        assert bits(got) == bits(wanted)
    assert fast.replays() == CALLS - 2


def test_a_quantized_module() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    with torch.no_grad():
        held_to_eager(small, dense())


def test_verified_calls_with_sparse_results() -> None:
    with torch.no_grad():
        held_to_eager(lambda x: torch.sparse.mm(A, x * 2).relu(), dense(8), verify=2)
        held_to_eager(lambda x: (x * 2).relu().to_sparse(), dense(8), verify=2)
