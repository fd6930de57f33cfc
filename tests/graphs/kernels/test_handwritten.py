"""Kernels written by hand: over many shapes, strides and values, bit by bit what the op of torch gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.graphs.kernels.op_calls import OpCall, copied, difference
from torchreel import _graphs

aten = torch.ops.aten
_CASES = 12
_FLOATS = (torch.float32, torch.float32, torch.float64)


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    yield
    torch.set_num_threads(threads)


def call_of(op: Any, *arguments: Any, **named: Any) -> OpCall:
    schema = op._schema.arguments[len(arguments) :]
    return OpCall(op, (*arguments, *(named.get(argument.name, argument.default_value) for argument in schema)))


class Cases:
    """Random calls, of which the hand-written layer must take most, and get all right."""

    def __init__(self, seed: int) -> None:
        print("seed", seed)
        self.random = random.Random(seed)
        self.taken: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def hold(self, op: Any, *arguments: Any, **named: Any) -> None:
        call = call_of(op, *arguments, **named)
        accepted, unlike = difference(call, "handwritten")
        assert unlike == "", f"{call}: {unlike}"
        self.asked[call.name] += 1
        self.taken[call.name] += accepted

    def took(self, least: float = 0.5) -> None:
        few = {name: self.taken[name] / asked for name, asked in self.asked.items()}
        assert {name: share for name, share in few.items() if share < least} == {}

    def size(self) -> int:
        return self.random.choice((1, 2, 3, 16, 32, 64, self.random.randint(1, 20), self.random.randint(1, 90)))

    def dtype(self) -> torch.dtype:
        return self.random.choice(_FLOATS)

    def matrix(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        make: list[Callable[[], Tensor]] = [
            lambda: torch.randn(rows, columns, dtype=dtype),
            lambda: torch.randn(columns, rows, dtype=dtype).t(),
            lambda: torch.randn(rows, columns + 5, dtype=dtype)[:, 2 : 2 + columns],
            lambda: torch.randn(columns + 3, rows + 1, dtype=dtype)[1 : 1 + columns, :rows].t(),
            lambda: torch.randn(rows, 2 * columns, dtype=dtype)[:, ::2],
            lambda: torch.randn(1, columns, dtype=dtype).expand(rows, columns),
            lambda: torch.randn(1, 1, dtype=dtype).expand(rows, columns),
        ]
        return self.random.choice([*make[:2], *make])()

    def batch(self, batches: int, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        make: list[Callable[[], Tensor]] = [
            lambda: torch.randn(batches, rows, columns, dtype=dtype),
            lambda: torch.randn(batches, columns, rows, dtype=dtype).transpose(1, 2),
            lambda: torch.randn(rows, batches, columns, dtype=dtype).transpose(0, 1),
            lambda: torch.randn(1, rows, columns, dtype=dtype).expand(batches, rows, columns),
        ]
        return self.random.choice(make)()

    def heads(self, sizes: tuple[int, int, int, int], dtype: torch.dtype) -> Tensor:
        """As they are, or as they come out of a linear layer."""
        made = torch.randn(sizes, dtype=dtype)
        return made.transpose(1, 2).contiguous().transpose(1, 2) if self.random.random() < 0.5 else made

    def tensor(self, sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Dense in some order of its dimensions, or with gaps."""
        order = list(range(len(sizes)))
        if self.random.random() < 0.4:
            self.random.shuffle(order)
        made = (
            torch.randn([sizes[i] for i in order]).mul(4).to(dtype).permute([order.index(i) for i in range(len(order))])
        )
        return torch.stack([made, made], -1)[..., 0] if self.random.random() < 0.2 else made

    def sizes(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        return tuple(self.random.choice((1, 2, 3, 5, 8, 16, 17)) for _ in range(self.random.randint(least, most)))


@pytest.fixture
def cases() -> Cases:
    return Cases(seed=1)


def test_products_of_matrices(cases: Cases) -> None:
    for _ in range(2 * _CASES):
        dtype, rows, columns, depth = cases.dtype(), cases.size(), cases.size(), cases.size()
        one, other = cases.matrix(rows, depth, dtype), cases.matrix(depth, columns, dtype)
        bias = cases.random.choice([(columns,), (rows, columns), (1, columns), (rows, 1), ()])
        factors = cases.random.choice([{}, {"beta": 0}, {"beta": 0.5, "alpha": 2}, {"alpha": -0.1}])
        cases.hold(aten.mm.default, one, other)
        cases.hold(aten.addmm.default, torch.randn(bias, dtype=dtype), one, other, **factors)
        cases.hold(aten.addmm_.default, torch.randn(rows, columns, dtype=dtype), one, other, **factors)
        vector = torch.randn(2 * depth, dtype=dtype)[:: cases.random.choice((1, 2))][:depth]
        cases.hold(aten.mv.default, one, vector)
        cases.hold(aten.addmv.default, torch.randn(rows, dtype=dtype), one, vector, **factors)
    cases.took()


def test_one_row_times_a_matrix_is_bitwise_at_all_small_sizes(cases: Cases) -> None:
    for size in (1, 2, 3, 7, 8, 9, 16, 17, 31, 64):
        for depth in (1, 2, 7, 16, 33):
            weight, row = torch.randn(size, depth), torch.randn(1, depth)
            cases.hold(aten.addmm.default, torch.randn(size), row, weight.t())
            cases.hold(aten.mm.default, row, weight.t().contiguous())
            cases.hold(aten.mm.default, weight, row.t())
    cases.took(1)


def test_a_bias_that_is_not_a_number_does_not_count_where_beta_is_zero(cases: Cases) -> None:
    bias = torch.full((5,), float("nan"))
    cases.hold(aten.addmm.default, bias, torch.randn(3, 4), torch.randn(4, 5), beta=0)
    cases.took(1)


def test_products_of_batches(cases: Cases) -> None:
    for _ in range(_CASES):
        dtype, batches = cases.dtype(), cases.random.choice((1, 2, 3, 8))
        rows, columns, depth = (cases.random.choice((1, 2, 4, 8, 9, 30)) for _ in range(3))
        one, other = cases.batch(batches, rows, depth, dtype), cases.batch(batches, depth, columns, dtype)
        factors = cases.random.choice([{}, {"beta": 0}, {"beta": 0.5, "alpha": 2}])
        cases.hold(aten.bmm.default, one, other)
        cases.hold(aten.baddbmm.default, torch.randn(batches, 1, columns, dtype=dtype), one, other, **factors)
        cases.hold(aten.baddbmm_.default, torch.randn(batches, rows, columns, dtype=dtype), one, other, **factors)
    cases.took()


def test_copies_and_casts(cases: Cases) -> None:
    dtypes = (*_FLOATS, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
    for _ in range(2 * _CASES):
        sizes = cases.sizes()
        source = cases.tensor(sizes, cases.random.choice(dtypes))
        narrow = tuple(1 if cases.random.random() < 0.3 else size for size in sizes)
        cases.hold(aten.clone.default, source)
        cases.hold(aten.clone.default, source, memory_format=torch.contiguous_format)
        cases.hold(aten._to_copy.default, source, dtype=cases.random.choice(dtypes))
        cases.hold(aten.copy_.default, cases.tensor(sizes, cases.random.choice(dtypes)), source)
        cases.hold(aten.copy_.default, cases.tensor(sizes, source.dtype), cases.tensor(narrow, source.dtype))
    cases.took(1)


def test_a_copy_onto_itself_shifted_is_left_to_torch() -> None:
    whole = torch.randn(9)
    assert _graphs.kernel("aten::copy_", (whole[1:], whole[:-1], False), [whole[1:]], "handwritten") is None


def test_fills(cases: Cases) -> None:
    for _ in range(_CASES):
        target = cases.tensor(cases.sizes(), cases.random.choice((torch.float32, torch.float64, torch.int64)))
        cases.hold(aten.zero_.default, target)
        cases.hold(aten.zeros_like.default, target)
        cases.hold(aten.ones_like.default, target)
        cases.hold(aten.full_like.default, target, 3)
        for value in (0.0, -0.0, 2.5, float("nan"), float("-inf")):
            if target.is_floating_point():
                cases.hold(aten.fill_.Scalar, target, value)
    cases.took(1)


def test_arithmetic(cases: Cases) -> None:
    for _ in range(2 * _CASES):
        dtype, sizes = cases.dtype(), cases.sizes(1)
        one = cases.tensor(sizes, dtype)
        if one.is_contiguous() and one.numel() > 3:
            one.view(-1)[:3] = torch.tensor([float("nan"), -0.0, float("inf")], dtype=dtype)
        other = cases.random.choice(
            [copied(one), torch.randn_like(one), cases.tensor(sizes, dtype), torch.randn((), dtype=dtype), 2, -1.7]
        )
        for alpha in (1, -0.01, 2):
            cases.hold(aten.add.Tensor, one, other, alpha=alpha)
            cases.hold(aten.sub.Tensor, one, other, alpha=alpha)
            cases.hold(aten.add_.Tensor, copied(one), other, alpha=alpha)
        for op in (aten.mul.Tensor, aten.div.Tensor, aten.mul_.Tensor, aten.div_.Tensor):
            cases.hold(op, copied(one), other)
        cases.hold(aten.relu.default, one)
        cases.hold(aten.relu_.default, copied(one))
        cases.hold(aten.threshold_backward.default, torch.randn_like(one), one, 0.5)
    cases.took(0.2)


def test_activations(cases: Cases) -> None:
    for sizes in ((16,), (1, 32), (2, 64), (3, 160), (4096,), (17,), (100,)):
        for scale in (0.01, 1, 30):
            numbers = torch.randn(sizes) * scale
            numbers.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
            for op in (aten.sigmoid, aten.tanh, aten.silu, aten.sigmoid_, aten.tanh_, aten.silu_, aten.gelu):
                cases.hold(op.default, copied(numbers))


def test_gelu_is_bitwise_over_all_magnitudes() -> None:
    count = 1 << 14
    numbers, result = torch.empty(count), torch.empty(count)
    kernel = _graphs.kernel("aten::gelu", (numbers, "none"), [result], "handwritten")
    if kernel is None:
        pytest.skip("On this machine gelu is left to torch.")
    steps = torch.arange(count, dtype=torch.int64) * 40961
    for begin in range(-(1 << 31), (1 << 31) - count * 40961, count * 40961):
        numbers.copy_((steps + begin).to(torch.int32).view(torch.float32))
        kernel.run()
        assert torch.equal(aten.gelu(numbers).view(torch.int32), result.view(torch.int32))


def test_reductions(cases: Cases) -> None:
    for _ in range(_CASES):
        source = cases.tensor(cases.sizes(), cases.dtype())
        over = cases.random.sample(range(source.dim()), cases.random.randint(0, source.dim()))
        keep = cases.random.random() < 0.5
        cases.hold(aten.sum.default, source)
        cases.hold(aten.mean.default, source)
        cases.hold(aten.sum.dim_IntList, source, over, keep)
        cases.hold(aten.mean.dim, source, [dimension - source.dim() for dimension in over], keep)
    cases.took(1)


def test_norms(cases: Cases) -> None:
    for _ in range(_CASES):
        dtype, sizes = cases.dtype(), cases.sizes(1, 3)
        shape = list(sizes[-cases.random.randint(1, len(sizes)) :])
        weight, bias = (cases.random.choice([None, torch.randn(shape, dtype=dtype)]) for _ in range(2))
        cases.hold(aten.native_layer_norm.default, cases.tensor(sizes, dtype), shape, weight, bias, 1e-5)
        image = torch.randn(2, 5, *sizes[:2], dtype=dtype)
        statistics = torch.randn(5, dtype=dtype), torch.rand(5, dtype=dtype)
        cases.hold(aten._native_batch_norm_legit_no_training.default, image, None, None, *statistics, 0.1, 1e-5)
        cases.hold(aten.native_batch_norm.default, image, *statistics, *statistics, False, 0.1, 1e-5)
        source = torch.randn(sizes, dtype=dtype)
        weight = torch.randn(shape, dtype=dtype)
        _, mean, rstd = aten.native_layer_norm(source, shape, weight, weight, 1e-5)
        gradient = torch.randn(sizes, dtype=dtype)
        masks = [True, True, True]
        cases.hold(aten.native_layer_norm_backward.default, gradient, source, shape, mean, rstd, weight, weight, masks)
    cases.took(0.9)


def test_attention(cases: Cases) -> None:
    for _ in range(_CASES):
        dtype, batch, heads = cases.dtype(), cases.random.randint(1, 3), cases.random.randint(1, 4)
        length, memory, width = cases.size(), cases.size(), cases.random.choice((4, 8, 20, 32))
        query, key, value = (cases.heads((batch, heads, count, width), dtype) for count in (length, memory, memory))
        causal = cases.random.random() < 0.3
        mask = cases.random.choice([None, (length, memory), (batch, 1, length, memory)])
        options: dict[str, Any] = {
            "attn_mask": None if causal or mask is None else torch.randn(mask, dtype=dtype),
            "scale": cases.random.choice([None, 0.3]),
        }
        forward = aten._scaled_dot_product_flash_attention_for_cpu.default
        cases.hold(forward, query, key, value, 0.0, causal, **options)
        output, logsumexp = forward(query, key, value, 0.0, causal, **options)
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        gradient = cases.heads((batch, heads, length, width), dtype)
        cases.hold(backward, gradient, query, key, value, output, logsumexp, 0.0, causal, **options)
    cases.took(0.9)


def test_pieces(cases: Cases) -> None:
    for _ in range(_CASES):
        dtype, sizes = cases.dtype(), cases.sizes(1)
        dimension = cases.random.randrange(len(sizes))
        pieces = []
        for _ in range(cases.random.randint(1, 4)):
            size = cases.random.randint(0, 5)
            pieces.append(cases.tensor((*sizes[:dimension], size, *sizes[dimension + 1 :]), dtype))
        cases.hold(aten.cat.default, pieces, dimension - len(sizes))
        cases.hold(aten.cat.default, [torch.randn(0), *pieces, pieces[0].to(torch.float16)], dimension)
        cases.hold(aten.stack.default, [cases.tensor(sizes, dtype) for _ in pieces], dimension)
        whole, begin = torch.randn(sizes, dtype=dtype), cases.random.randrange(sizes[dimension])
        piece = aten.slice(whole, dimension, begin, None, 2)
        cases.hold(aten.slice_backward.default, piece.clone(), list(sizes), dimension, begin, 2**63 - 1, 2)
        cases.hold(aten.select_backward.default, whole.select(dimension, begin), list(sizes), dimension, begin)
    cases.took(0.9)


def test_lookups(cases: Cases) -> None:
    for _ in range(_CASES):
        dtype, rows, width = cases.dtype(), cases.size(), cases.size()
        indices = torch.randint(0, rows, cases.sizes(0, 3), dtype=cases.random.choice((torch.int64, torch.int32)))
        cases.hold(aten.embedding.default, torch.randn(rows, width, dtype=dtype), indices)
        gradient = torch.randn(*indices.shape, width, dtype=dtype)
        padding = cases.random.choice((-1, 0))
        cases.hold(aten.embedding_dense_backward.default, gradient, indices.long(), rows, padding, False)
        chosen = torch.randint(0, width, (cases.size(),))
        cases.hold(aten.index_select.default, torch.randn(3, width, 2, dtype=dtype), 1, chosen)
    cases.took(0.9)


def test_an_index_out_of_range_is_the_error_of_torch() -> None:
    weight, indices, result = torch.randn(4, 3), torch.tensor([0, 3]), torch.empty(2, 3)
    kernel = _graphs.kernel("aten::embedding", (weight, indices, -1, False, False), [result], "handwritten")
    for wrong in (4, -1, 2**40):
        indices[1] = wrong
        with pytest.raises(IndexError, match="index out of range in self"):
            kernel.run()
    indices[1] = 2
    kernel.run()
    assert torch.equal(result, weight[indices])


def test_losses(cases: Cases) -> None:
    for _ in range(_CASES):
        dtype, sizes = cases.dtype(), cases.sizes()
        one, other = cases.tensor(sizes, dtype), cases.tensor(sizes, dtype)
        for reduction in (1, 2):
            cases.hold(aten.mse_loss.default, one, other, reduction)
            cases.hold(aten.mse_loss_backward.default, torch.randn((), dtype=dtype), one, other, reduction)
        cases.hold(aten.mse_loss_backward.default, torch.randn(sizes, dtype=dtype), one, other, 0)
    cases.took(1)


def test_lists_of_tensors(cases: Cases) -> None:
    for _ in range(4):
        dtype = cases.dtype()
        lists = [torch.randn(cases.sizes(), dtype=dtype) for _ in range(cases.random.randint(1, 4))]
        others = [torch.rand_like(tensor) + 0.1 for tensor in lists]
        numbers = [0.5 + i for i in range(len(lists))]
        for op in (aten._foreach_add, aten._foreach_sub, aten._foreach_mul, aten._foreach_div):
            cases.hold(op.List, lists, others)
            cases.hold(op.Scalar, lists, 0.7)
            cases.hold(op.ScalarList, lists, numbers)
        for op in (aten._foreach_addcmul, aten._foreach_addcdiv):
            cases.hold(op.Scalar, lists, others, others, 0.3)
            cases.hold(op.ScalarList, lists, others, others, numbers)
        cases.hold(aten._foreach_lerp.Scalar, lists, others, 0.1)
        cases.hold(aten._foreach_sqrt.default, others)
    cases.took(1)


def test_lists_of_tensors_in_place(cases: Cases) -> None:
    for _ in range(4):
        dtype = cases.dtype()
        lists = [torch.randn(cases.sizes(), dtype=dtype) for _ in range(cases.random.randint(1, 4))]
        others = [torch.rand_like(tensor) + 0.1 for tensor in lists]
        for op, rest in (
            (aten._foreach_add_.List, (others,)),
            (aten._foreach_mul_.Scalar, (0.9,)),
            (aten._foreach_addcmul_.Scalar, (others, others, 0.3)),
            (aten._foreach_lerp_.Scalar, (others, 0.1)),
        ):
            mine, theirs = copied(lists), copied(lists)
            name = f"{op._schema.name}.{op._schema.overload_name}"
            kernel = _graphs.kernel(name, call_of(op, mine, *rest).arguments, mine, "handwritten")
            assert kernel is not None
            for _ in range(2):
                kernel.run()
                op(theirs, *rest)
                assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))


def test_convolution_of_one_image(cases: Cases) -> None:
    for _ in range(_CASES):
        dtype, channels, made = cases.dtype(), cases.random.randint(1, 9), cases.random.randint(1, 20)
        kernel = [cases.random.randint(1, 4) for _ in range(2)]
        stride, padding = ([cases.random.randint(low, 2 + low) for _ in range(2)] for low in (1, 0))
        image = torch.randn(1, channels, *(cases.random.randint(size, 20) for size in kernel), dtype=dtype)
        weight = torch.randn(made, channels, *kernel, dtype=dtype)
        bias = cases.random.choice([None, torch.randn(made, dtype=dtype)])
        cases.hold(aten.convolution.default, image, weight, bias, stride, padding, [1, 1], False, [0, 0], 1)
    cases.took(0.5)


def test_maxima_of_windows(cases: Cases) -> None:
    for _ in range(4 * _CASES):
        kernel = [cases.random.randint(1, 4) for _ in range(2)]
        stride = cases.random.choice([[], [2, 2], [1, 3]])
        padding, dilation = [size // 2 for size in kernel], cases.random.choice([[1, 1], [2, 1]])
        if cases.random.random() < 0.4:
            kernel, stride, padding, dilation = [2, 2], [2, 2], [0, 0], [1, 1]
        image = torch.randn(2, 3, cases.random.randint(8, 20), cases.random.randint(8, 20), dtype=cases.dtype())
        kind = cases.random.choice(["plain", "ties", "not a number", "nothing"])
        if kind == "ties":
            image.round_()
        elif kind == "not a number":
            image[image > 1] = float("nan")
        elif kind == "nothing":
            image.fill_(float("-inf"))
        ceil = cases.random.random() < 0.4
        cases.hold(aten.max_pool2d_with_indices.default, image, kernel, stride, padding, dilation, ceil)
    cases.took(1)
