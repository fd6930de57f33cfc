"""Kernels of graphs, op by op: each layer gives, run after run on the same memory, bit by bit what the op gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.graphs.kernels.op_calls import LAYERS, OpCall, bits, difference, failures
from tests.tape.op_database import SOME_DTYPES, Way, calm, database, pytest_generate_tests, title  # noqa: F401
from torchreel import _graphs

_EVERY = 24  # op, of the sample
_SHARDS = 3

aten = torch.ops.aten


def ways(op: Any, dtypes: tuple[torch.dtype, ...]) -> list[Way]:
    supported = [dtype for dtype in dtypes if dtype in op.supported_dtypes("cpu")]
    found = [Way(dtype) for dtype in supported]
    if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu"):
        found += [Way(torch.float32, backward=True), Way(torch.float32, backward=True, gaps=True)]
    if op.inplace_variant is not None and supported:
        found.append(Way(supported[0], in_place=True))
    return found


@pytest.mark.parametrize("shard", [0, *(pytest.param(shard, marks=pytest.mark.long) for shard in range(1, _SHARDS))])
def test_ops_of_a_sample_are_bitwise_in_every_layer(shard: int) -> None:
    taken: dict[str, set[str]] = {}
    found = []
    for op in database()[::_EVERY][shard::_SHARDS]:
        for way in ways(op, (torch.float32, torch.bfloat16)):
            found += failures(op, way, 2, taken)
    assert found == []
    assert {"structured", "out", "boxed"} <= taken.keys()


@pytest.mark.long
def test_op_is_bitwise_in_every_layer(op: Any) -> None:
    found = []
    for way in ways(op, SOME_DTYPES):
        found += failures(op, way, None, {})
    assert found == []


def numbers(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.testing.make_tensor(sizes, dtype=dtype, device="cpu", low=1, high=9)


def taken_by(call: OpCall) -> set[str]:
    """The layers that take a call, after all of them have been held to the op."""
    layers = set()
    for layer in LAYERS:
        accepted, unlike = difference(call, layer)
        assert unlike == "", f"{call} in the layer {layer}: {unlike}"
        if accepted:
            layers.add(layer)
    return layers


STRUCTURED: dict[str, Callable[[], OpCall]] = {
    "plain": lambda: OpCall(aten.add.Tensor, (numbers(4, 5), numbers(4, 5), 1)),
    "in place": lambda: OpCall(aten.mul_.Tensor, (numbers(4, 5), numbers(5))),
    "with out=": lambda: OpCall(aten.sub.out, (numbers(4), numbers(4), 2, numbers(4))),
    "a number": lambda: OpCall(aten.add.Tensor, (numbers(4, 5), 2.5, 3)),
    "a number that is rounded": lambda: OpCall(aten.mul.Tensor, (numbers(7, dtype=torch.bfloat16), 0.1)),
    "a number of the schema": lambda: OpCall(aten.div.Scalar, (numbers(4), 3)),
    "a number to compare with": lambda: OpCall(aten.gt.Scalar, (numbers(4, 5), 4)),
    "one that calls another": lambda: OpCall(aten.relu.default, (torch.randn(4, 5),)),
    "broadcast": lambda: OpCall(aten.add.Tensor, (numbers(4, 1), numbers(5), 1)),
    "expanded": lambda: OpCall(aten.mul.Tensor, (numbers(1, 5).expand(4, 5), numbers(4, 5))),
    "gaps": lambda: OpCall(aten.add.Tensor, (numbers(8, 10)[::2, ::2], numbers(5, 4).t(), 1)),
    "channels last": lambda: OpCall(aten.sigmoid.default, (numbers(2, 3, 4, 5).to(memory_format=torch.channels_last),)),
    "no dimensions": lambda: OpCall(aten.exp.default, (numbers(),)),
    "empty": lambda: OpCall(aten.add.Tensor, (numbers(0, 5), numbers(5), 1)),
    "the same twice": lambda: (lambda x: OpCall(aten.mul.Tensor, (x, x)))(numbers(6)),
    "a reduction": lambda: OpCall(aten.sum.dim_IntList, (numbers(4, 5), [1], True, None)),
    "two results": lambda: OpCall(aten.max.dim, (numbers(4, 5), 1, False)),
    "a list": lambda: OpCall(aten.cat.default, ([numbers(2, 3), numbers(4, 3)], 0)),
    "indices": lambda: OpCall(aten.index.Tensor, (numbers(5, 3), [torch.tensor([4, 0, 2])])),
    "optional bounds": lambda: OpCall(aten.clamp.Tensor, (numbers(5), None, numbers(5))),
    "halves": lambda: OpCall(aten.glu.default, (numbers(6), 0)),
    "a word": lambda: OpCall(aten.gelu.default, (torch.randn(40), "tanh")),
}


@pytest.mark.parametrize("kind", STRUCTURED)
def test_structured_ops_are_prepared_once(kind: str) -> None:
    assert "structured" in taken_by(STRUCTURED[kind]())


# What must be made anew at each run has no place in a kernel that is made once.
NOT_STRUCTURED: dict[str, Callable[[], OpCall]] = {
    "another dtype": lambda: OpCall(aten.add.Tensor, (numbers(4), numbers(4, dtype=torch.float64), 1)),
    "an integer": lambda: OpCall(aten.exp.default, (numbers(4, dtype=torch.int64),)),
    "no dimensions but a dtype": lambda: OpCall(aten.mul.Tensor, (numbers(4), numbers(dtype=torch.float64))),
    "a dtype in place": lambda: OpCall(aten.add_.Tensor, (numbers(4), numbers(4, dtype=torch.float64), 1)),
    "a mask": lambda: OpCall(aten.index.Tensor, (numbers(3), [torch.tensor([True, False, True])])),
    "small indices": lambda: OpCall(aten.index.Tensor, (numbers(5), [torch.tensor([1, 0], dtype=torch.int32)])),
}


@pytest.mark.parametrize("kind", NOT_STRUCTURED)
def test_what_is_cast_or_copied_is_left_to_other_layers(kind: str) -> None:
    taken = taken_by(NOT_STRUCTURED[kind]())
    assert "structured" not in taken
    assert "boxed" in taken


def test_a_constant_may_be_cast_once() -> None:
    x, constant = numbers(4), numbers(4, dtype=torch.float64)
    result = torch.empty(4, dtype=torch.float64)
    assert _graphs.kernel("aten::mul.Tensor", (constant, x), [result], "structured", fixed=[0]) is None
    small = numbers(dtype=torch.bfloat16)
    result = torch.empty(4)
    kernel = _graphs.kernel("aten::mul.Tensor", (x, small), [result], "structured", fixed=[1])
    assert kernel is not None
    for _ in range(2):
        x.copy_(numbers(4))
        kernel.run()
        assert bits(result) == bits(x * small)


def test_results_of_another_shape_are_refused() -> None:
    call = ("aten::add.Tensor", (numbers(4), numbers(4), 1))
    assert _graphs.kernel(*call, [torch.empty(5)], "structured") is None
    assert _graphs.kernel(*call, [torch.empty(4, dtype=torch.float64)], "structured") is None
    assert _graphs.kernel(*call, [torch.empty(8)[::2]], "structured") is None


def test_a_shape_that_changes_is_said() -> None:
    x = torch.tensor([0, 3, 0, 5])
    result = torch.empty(2, 1, dtype=torch.int64)
    kernel = _graphs.kernel("aten::nonzero", (x,), [result])
    kernel.run()
    assert (kernel.layer, result.tolist()) == ("boxed", [[1], [3]])
    x[0] = 7
    with pytest.raises(RuntimeError) as raised:
        kernel.run()
    assert str(raised.value) == (
        "The op aten::nonzero gave Long [2, 1] when it was recorded, and gives Long [3, 1] now: "
        "the memory of the graph does not fit it."
    )


def test_errors_of_an_op_are_raised_at_each_run() -> None:
    x, y = torch.tensor([6, 7]), torch.tensor([2, 0])
    result = torch.empty_like(x)
    kernel = _graphs.kernel("aten::div.Tensor_mode", (x, y, "floor"), [result])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            kernel.run()
        y.fill_(2)
        kernel.run()
        assert result.tolist() == [3, 3]
        y.zero_()


def test_random_ops_draw_from_torchs_generator() -> None:
    x = torch.full((1000,), 0.5)
    result = torch.empty(1000)
    kernel = _graphs.kernel("aten::bernoulli", (x, None), [result])
    torch.manual_seed(3)
    kernel.run()
    first = result.clone()
    kernel.run()
    torch.manual_seed(3)
    assert bits(first) == bits(torch.bernoulli(x))
    assert bits(result) == bits(torch.bernoulli(x))


def test_the_fastest_layer_is_taken() -> None:
    x, result = numbers(4), torch.empty(4)
    assert _graphs.layers("aten::add.Tensor")[-3:] == ["structured", "out", "boxed"]
    assert _graphs.kernel("aten::sin", (x,), [result]).layer == "structured"
    assert _graphs.kernel("aten::abs", (x,), [result]).layer in ("stub", "out")


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match="There is no op aten::no_such_op in this process"):
        _graphs.kernel("aten::no_such_op", (), [])
    with pytest.raises(ValueError, match="takes 3 arguments, defaults included, and 1 were given"):
        _graphs.kernel("aten::add.Tensor", (numbers(1),), [])
    with pytest.raises(ValueError, match="There is no layer of kernels called fast"):
        _graphs.kernel("aten::exp", (numbers(1),), [torch.empty(1)], "fast")
