"""Programs of every kind that a tape promises to hold: each is made anew, and says what it reads and changes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch.nn import functional
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint


@dataclass
class Case:
    """A function, what it is called with, and what it changes."""

    function: Callable[..., Any]
    inputs: list[Any]
    others: list[Any] | None = None  # to replay on; None where values decide what the program does
    owners: list[torch.Tensor] = field(default_factory=list)  # tensors that it closed over
    generators: list[torch.Generator] = field(default_factory=list)


PROGRAMS: dict[str, Callable[[], Case]] = {}


def program(make: Callable[[], Case]) -> Callable[[], Case]:
    PROGRAMS[make.__name__] = make
    return make


def of_floats(function: Callable[..., Any], *sizes: int, **kept: Any) -> Case:
    """A case with one input of normal numbers."""
    return Case(function, [torch.randn(*sizes)], [torch.randn(*sizes)], **kept)


@program
def views_and_in_place() -> Case:
    kept = torch.zeros(4, 4)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = kept[1:3].t()
        rows.add_(x[:, :2])
        kept.diagonal().fill_(3.0)
        kept.view(-1)[::5].mul_(2)
        x.transpose_(0, 1).relu_()
        return x, kept.clone(), rows

    return of_floats(function, 4, 4, owners=[kept])


@program
def out_arguments() -> Case:
    kept = torch.zeros(3)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch.add(x, 1.5, out=kept)
        grown = torch.empty(0)
        torch.cumsum(x, 0, out=grown)
        values, places = torch.empty(3), torch.empty(3, dtype=torch.long)
        torch.sort(x, out=(values, places))
        return grown, values, places

    return of_floats(function, 3, owners=[kept])


@program
def several_outputs() -> Case:
    def function(x: torch.Tensor) -> dict[str, Any]:
        parts = x.split(2)
        top = x.topk(2)
        return {"parts": parts, "top": top, "rows": list(x.unbind(1)), "var": torch.var_mean(x, 0), "n": len(parts)}

    return of_floats(function, 5, 3)


@program
def optional_index() -> Case:
    def function(x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x[:, place] = x[:, place] * 2
        return x[:, place], x[place, :, None], x[place][:, place[:2], None]

    return Case(
        function,
        [torch.randn(4, 4), torch.tensor([0, 2, 3])],
        [torch.randn(4, 4), torch.tensor([3, 1, 1])],
    )


@program
def nonzero() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.nonzero(), x[x > 0], torch.unique(x)

    return Case(function, [torch.tensor([1.0, 0.0, 3.0, -1.0])], [torch.tensor([0.0, 2.0, -5.0, 7.0])])


@program
def item_branch() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum().item() > 1 else x - 1

    return Case(function, [torch.tensor([1.0, 2.0])], [torch.tensor([2.0, 1.0])])


@program
def default_generator() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            functional.dropout(x, 0.5),
            torch.randn(3),
            torch.randperm(5),
            torch.rand_like(x),
            x.abs().bernoulli_(0.3),
        )

    return of_floats(function, 4)


@program
def generator_made_inside() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = torch.Generator().manual_seed(7)
        return x + torch.rand(3, generator=own), torch.rand(3, generator=own), torch.rand(2)

    return of_floats(function, 3)


@program
def generator_closed_over() -> Case:
    own = torch.Generator().manual_seed(3)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + torch.rand(3, generator=own), torch.normal(0.0, 1.0, (2,), generator=own)

    return of_floats(function, 3, generators=[own])


@program
def manual_seed_inside() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch.rand(3)
        torch.manual_seed(11)
        return first, x + torch.rand(3), torch.randn(2)

    return of_floats(function, 3)


@program
def generator_manual_seed_inside() -> Case:
    own = torch.Generator().manual_seed(3)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch.rand(3, generator=own)
        own.manual_seed(5)
        return first, x + torch.rand(3, generator=own)

    return of_floats(function, 3, generators=[own])


@program
def generator_seeded_first() -> Case:
    own = torch.Generator().manual_seed(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        own.manual_seed(5)
        return x + torch.rand(3, generator=own)

    return of_floats(function, 3, generators=[own])


@program
def seeded_and_not_drawn() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(13)
        return x * 2

    return of_floats(function, 3)


@program
def manual_seed_first() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(13)
        return x + torch.rand(3)

    return of_floats(function, 3)


@program
def generator_state_put_back() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state = torch.get_rng_state()
        first = torch.rand(3)
        torch.set_rng_state(state)
        return first, x + torch.rand(3)

    return of_floats(function, 3)


@program
def autograd() -> Case:
    weight = torch.randn(4, 4, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        loss = (x @ weight).tanh().pow(2).sum()
        loss.backward()
        return loss.detach()

    return of_floats(function, 2, 4, owners=[weight])


@program
def double_backward() -> Case:
    weight = torch.randn(4, requires_grad=True)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (first,) = torch.autograd.grad((weight * x).sin().sum(), weight, create_graph=True)
        return first.detach(), *torch.autograd.grad(first.pow(2).sum(), weight)

    return of_floats(function, 4, owners=[weight])


class Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1) + 0.5


@program
def autograd_function() -> Case:
    weight = torch.randn(4, requires_grad=True)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(Clamped.apply(weight * x).sum(), weight)

    return of_floats(function, 4, owners=[weight])


def checkpointed(reentrant: bool) -> Case:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.GELU(), torch.nn.Linear(8, 1))

    def function(x: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = checkpoint(model, x.requires_grad_(), use_reentrant=reentrant).sum()
        loss.backward()
        return loss.detach()

    return of_floats(function, 3, 4, owners=list(model.parameters()))


@program
def checkpoint_reentrant() -> Case:
    return checkpointed(True)


@program
def checkpoint_not_reentrant() -> Case:
    return checkpointed(False)


@program
def complex_and_conjugate() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.complex(x, x.flip(0)) * (1 + 2j)
        return z.conj(), z.conj() @ z, z.imag.neg(), z.conj().imag, torch.view_as_real(z).mul_(2)

    return of_floats(function, 4)


@program
def sparse_coo() -> Case:
    weight = torch.randn(4, 2, requires_grad=True)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        place = torch.tensor([[0, 1, 1, 2], [2, 0, 0, 3]])
        sparse = torch.sparse_coo_tensor(place, x, (3, 4)).coalesce()
        product = torch.sparse.mm(sparse, weight)
        return product.detach(), sparse, (sparse * 2).to_dense(), *torch.autograd.grad(product.sum(), weight)

    return of_floats(function, 4, owners=[weight])


@program
def sparse_coo_input() -> Case:
    def function(sparse: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        return sparse @ dense + 1

    def inputs() -> list[Any]:
        sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.randn(2), (2, 2)).coalesce()
        return [sparse, torch.randn(2, 3)]

    return Case(function, inputs(), inputs())


@program
def sparse_csr() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sparse = torch.sparse_csr_tensor([0, 2, 3], [0, 1, 2], x, (2, 3))
        return sparse @ torch.ones(3, 2), sparse.to_dense(), sparse.values() * 2, x.outer(x).to_sparse_csr().to_dense()

    return of_floats(function, 3)


@program
def nested_jagged() -> Case:
    weight = torch.randn(3, 2, requires_grad=True)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nested = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 2, 5]))
        out = (nested @ weight).sin()
        return out.values().detach(), *torch.autograd.grad(out.values().sum(), weight)

    return of_floats(function, 5, 3, owners=[weight])


@program
def nested_strided() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nested = torch.nested.nested_tensor([x[:2], x[2:]], layout=torch.strided)
        out = (nested * 2).relu()
        return out.to_padded_tensor(0.0), *out.unbind()

    return of_floats(function, 5, 3)


@program
def nested_strided_of_views() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        nested = torch.nested.as_nested_tensor([x[:2], x[2:]], layout=torch.strided)
        return torch.nested.to_padded_tensor(nested.transpose(1, 2).contiguous(), -1.0)

    return of_floats(function, 5, 3)


@program
def quantized() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
        each = torch.quantize_per_channel(x, torch.full((4,), 0.05), torch.zeros(4).long(), 0, torch.qint8)
        return q.dequantize(), q.int_repr(), each.dequantize(), q.view(2, 8).relu().dequantize(), q

    return of_floats(function, 4, 4)


@program
def vmap() -> Case:
    weight = torch.randn(3, 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda row: (row @ weight).softmax(0) + row[0])(x)

    return of_floats(function, 5, 3, owners=[weight])


@program
def func_grad() -> Case:
    model = torch.nn.Linear(3, 2)

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, x).pow(2).sum()

    def function(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return torch.func.vmap(torch.func.grad(loss), (None, 0))(dict(model.named_parameters()), x)

    return of_floats(function, 5, 3, owners=list(model.parameters()))


@program
def jacrev() -> Case:
    return of_floats(lambda x: torch.func.jacrev(lambda y: y.sin() * y.sum())(x), 4)


@program
def hessian() -> Case:
    return of_floats(lambda x: torch.func.hessian(lambda y: (y.sin() * y).sum())(x), 4)


@program
def jvp() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            tangent = torch.autograd.forward_ad.unpack_dual(dual.exp().sum()).tangent
        return *torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),)), tangent

    return of_floats(function, 4)


@program
def autocast() -> Case:
    weight = torch.randn(4, 4, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.linear(x, weight).softmax(-1).pow(2).sum() * 0.5
        loss.backward()
        return loss.detach()

    return of_floats(function, 2, 4, owners=[weight])


@program
def inference_mode() -> Case:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            y = model(x)
            y[0].add_(1)
            return y.view(-1)

    return of_floats(function, 2, 4, owners=list(model.parameters()))


@torch.library.custom_op("torchreel_tests::scaled", mutates_args=("out",))
def scaled(x: torch.Tensor, factor: float, out: torch.Tensor) -> torch.Tensor:
    out.copy_(x * factor)
    return x.sin() * factor


@program
def custom_op() -> Case:
    kept = torch.zeros(4)
    return of_floats(lambda x: scaled(x, 2.5, kept) + kept, 4, owners=[kept])


@torch.library.custom_op("torchreel_tests::cubed", mutates_args=())
def cubed(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() ** 3)


cubed.register_autograd(
    lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@program
def custom_op_with_autograd() -> Case:
    weight = torch.randn(4, requires_grad=True)
    return of_floats(lambda x: torch.autograd.grad(cubed(weight * x).sum(), weight), 4, owners=[weight])


@program
def jit_script() -> Case:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(scripted_source)
    weight = torch.randn(4, requires_grad=True)
    return of_floats(lambda x: torch.autograd.grad(scripted(weight * x).sum(), weight), 4, owners=[weight])


def scripted_source(x: torch.Tensor) -> torch.Tensor:
    for place in range(3):
        x = torch.tanh(x) * place + x
    return x


@program
def foreach() -> Case:
    kept = [torch.randn(3), torch.randn(2, 2)]

    def function(x: torch.Tensor) -> tuple[Any, ...]:
        torch._foreach_add_(kept, [x, x[:2]], alpha=0.5)
        torch._foreach_mul_(kept, [0.5, 2.0])
        return torch._foreach_norm(kept), torch._foreach_sqrt(torch._foreach_abs(kept))

    return of_floats(function, 3, owners=kept)


@program
def attention() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q = x.requires_grad_()
        out = functional.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True)
        return out.detach(), *torch.autograd.grad(out.sum(), q)

    return of_floats(function, 1, 2, 5, 8)


@program
def resized() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.empty(0).resize_(2, 3).copy_(x)
        z = torch.zeros(8).resize_(4)
        z.resize_as_(y)
        z.fill_(2)
        return y, z, y.view(-1)[2:]

    return of_floats(function, 2, 3)


@program
def resized_state() -> Case:
    kept = torch.zeros(6)

    def function(x: torch.Tensor) -> torch.Tensor:
        kept.resize_(2, 3).copy_(x)
        result = kept * 2
        kept.resize_(6)
        return result

    return of_floats(function, 2, 3, owners=[kept])


@program
def set_storage() -> Case:
    kept = torch.randn(6)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        view = torch.empty(0).set_(kept.untyped_storage(), 1, (2, 2), (2, 1))
        view.add_(x)
        other = torch.empty(0)
        other.set_(x.t())
        return view, other * 2

    return of_floats(function, 2, 2, owners=[kept])


@program
def data_swapped() -> Case:
    weight = torch.nn.Parameter(torch.randn(3))

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.data = (weight * 0.5 + x).detach()
        return (weight * 2).detach()

    return of_floats(function, 3, owners=[weight])


@program
def tensor_subclass() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pair = TwoTensor(x, x * 2)
        out = (pair @ pair.t()).relu() + 1
        return out.a, out.b

    return of_floats(function, 3, 3)


@program
def tensor_subclass_input() -> Case:
    def function(pair: torch.Tensor) -> torch.Tensor:
        return (pair * 2).relu()

    def pair() -> TwoTensor:
        return TwoTensor(torch.randn(3), torch.randn(3))

    return Case(function, [pair()], [pair()])


def compiled(backend: str) -> Case:
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    fast = torch.compile(model, backend=backend)

    def function(x: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = fast(x).sin().sum()
        loss.backward()
        return loss.detach() * 3

    function(torch.randn(2, 4))
    return of_floats(function, 2, 4, owners=list(model.parameters()))


@program
def compiled_by_aot_eager() -> Case:
    return compiled("aot_eager")


@program
def compiled_by_inductor() -> Case:
    return compiled("inductor")


@program
def compiled_within() -> Case:
    """The first call, which compiles, is the one on the tape."""
    torch._dynamo.reset()
    fast = torch.compile(lambda x: x.sin() + x.cos() * 2, backend="aot_eager")
    return of_floats(lambda x: fast(x) + 1, 4)


@program
def linear_algebra() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        symmetric = x @ x.t() + torch.eye(4)
        return (
            torch.linalg.cholesky(symmetric),
            *torch.linalg.svd(x),
            torch.linalg.solve(symmetric, x),
            torch.linalg.eigvals(x),
            torch.linalg.det(x),
        )

    return of_floats(function, 4, 4)


@program
def fourier() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.fft.rfft(x)
        return (
            z,
            torch.fft.irfft(z * z.conj(), n=8),
            torch.fft.fft2(x.view(2, 4)),
            torch.stft(x, 4, window=torch.hann_window(4), return_complex=True),
        )

    return of_floats(function, 8)


@program
def einsum() -> Case:
    weight = torch.randn(3, 4, 5, requires_grad=True)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = torch.einsum("bi,iok,bk->bo", x, weight, x[:, :1].expand(-1, 5))
        return out.detach(), *torch.autograd.grad(out.sum(), weight)

    return of_floats(function, 2, 3, owners=[weight])


@program
def embedding_backward() -> Case:
    dense, sparse = torch.nn.Embedding(6, 3, padding_idx=0), torch.nn.EmbeddingBag(6, 3, mode="sum")

    def function(place: torch.Tensor) -> torch.Tensor:
        dense.zero_grad()
        sparse.zero_grad()
        loss = (dense(place).sum(1) * sparse(place)).sum()
        loss.backward()
        return loss.detach()

    inputs = [torch.tensor([[0, 2, 2], [5, 1, 0]])], [torch.tensor([[4, 4, 1], [0, 3, 3]])]
    return Case(function, *inputs, owners=[dense.weight, sparse.weight])


@program
def embedding_sparse_gradient() -> Case:
    weight = torch.randn(6, 3, requires_grad=True)

    def function(place: torch.Tensor) -> torch.Tensor:
        loss = functional.embedding(place, weight, sparse=True).pow(2).sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        return gradient.coalesce().to_dense()

    return Case(function, [torch.tensor([1, 2, 2])], [torch.tensor([4, 1, 3])], owners=[weight])


@program
def higher_order_cond() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin() * 2, lambda y: y.cos(), (x,))

    return Case(function, [torch.tensor([1.0, 2.0])], None)


@program
def numpy_read() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        largest = int((x * 2).numpy().argmax())
        return x[largest] + 1

    return Case(function, [torch.tensor([1.0, 5.0, 2.0])], None)


@program
def numpy_write() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.zeros(4)
        y.numpy()[1:3] = 7.0
        return y + x, y.sum()

    return of_floats(function, 4)


@program
def numpy_made() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        table = torch.from_numpy(numpy.arange(4, dtype=numpy.float32))
        return x * table + torch.as_tensor(numpy.ones(4, dtype=numpy.float32))

    return of_floats(function, 4)


@program
def numpy_made_and_written() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        table = torch.from_numpy(numpy.arange(4, dtype=numpy.float32))
        table += x
        return table * 2

    return of_floats(function, 4)


@program
def constant_written() -> Case:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        table, number = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor(5.0)
        table[1:3].add_(x[1:3])
        number.mul_(x[0])
        return table, number, torch.tensor([[1, 2]]).fill_(3)

    return of_floats(function, 4)


@program
def deep_copy() -> Case:
    return of_floats(lambda x: copy.deepcopy(x * 2) + 1, 4)


@program
def storage_filled() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.untyped_storage().fill_(0)
        return y + x

    return of_floats(function, 4)


@program
def listed() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * max((x + 1).tolist())

    return Case(function, [torch.tensor([1.0, 5.0, 2.0])], None)


@program
def thread() -> Case:
    kept = torch.zeros(4)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        results: list[torch.Tensor] = []

        def work() -> None:
            kept.add_(y)
            results.append(y.sin())

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        return results[0] + 1, y

    return of_floats(function, 4, owners=[kept])


@program
def thread_pool() -> Case:
    def function(x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(2) as pool:
            return torch.stack(list(pool.map(lambda part: part.sin() * 2, x.unbind())))

    return of_floats(function, 4, 3)


@program
def thread_pool_from_before() -> Case:
    pool = ThreadPoolExecutor(1)
    pool.submit(lambda: None).result()
    return of_floats(lambda x: pool.submit(lambda: x.exp() * 3).result() - 1, 4)


@program
def backward_in_thread() -> Case:
    weight = torch.randn(4, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        loss = (weight * x).tanh().sum()
        worker = threading.Thread(target=loss.backward)
        worker.start()
        worker.join()
        return loss.detach()

    return of_floats(function, 4, owners=[weight])
