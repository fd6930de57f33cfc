"""Programs as Python text: the text itself, and what it does when it is run."""

from __future__ import annotations

import ast
import struct
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.program.small import small_program
from torchreel.errors import CorruptTapeError
from torchreel.program.model import (
    Binding,
    Complex,
    Device,
    Formula,
    Frame,
    Generator,
    Input,
    Module,
    Named,
    Op,
    Program,
    Provenance,
    RandomState,
    Ref,
    Slot,
    Stack,
    StorageOf,
    Tree,
    Value,
)
from torchreel.program.scalar_types import DTYPE_NUMBERS
from torchreel.program.text.call import NUMBERS_FOR_TENSORS, SIZED_BY_VALUES
from torchreel.program.text.source import python_source


def leaf(value: Value) -> Tree:
    return Tree("leaf", leaf=value)


def program_of(slots: list[Slot], ops: list[Op], outputs: Tree, **more: Any) -> Program:
    """A program with the schemas that torch has for its ops; slots of role input are its inputs."""
    schemas = {}
    for op in ops:
        if not op.name.startswith("torchreel::"):
            base, _, overload = op.name.partition(".")
            schemas[op.name] = str(torch._C._get_schema(base, overload))
    inputs = [Input(slot.name, place) for place, slot in enumerate(slots) if slot.role == "input"]
    provenance = Provenance("0.4", "2.13.0", "3.11", "AVX2, 2 threads", "2026-01-01T00:00:00", "step (train.py:3)")
    return Program(provenance, slots, ops, inputs, Tree("tuple"), outputs, schemas=schemas, **more)


def tensor_slot(role: Any = "made", name: str = "", sizes: tuple[int, ...] = (3,), **more: Any) -> Slot:
    strides = (1,) if len(sizes) == 1 else ()
    return Slot(more.pop("storage", 0), more.pop("dtype", "float32"), sizes, strides, role=role, name=name, **more)


def number_slot(number: Any, dtype: str) -> Slot:
    return Slot(99, dtype, (), (), role="constant", number=number, is_number=True)


def runner(program: Program) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(compile(python_source(program), "tape.py", "exec"), scope)
    return scope["run"]


def test_the_text_of_a_small_step() -> None:
    program = program_of(
        [
            tensor_slot("input", "x"),
            tensor_slot("parameter", "model.weight", storage=1),
            tensor_slot(storage=2),
            tensor_slot(storage=3),
            tensor_slot(storage=4, sizes=()),
            number_slot(2.0, "float64"),
            tensor_slot("constant", storage=5, dtype="int64", sizes=(2,)),
            tensor_slot(storage=6, sizes=(2,)),
        ],
        [
            Op("aten::mul.Tensor", [Ref(0), Ref(1)], [Ref(2)], 1, 0),
            Op("aten::mul.Tensor", [Ref(2), Ref(5)], [Ref(3)], 1, 0),
            Op("aten::sum", [Ref(3), None], [Ref(4)], 2),
            Op("aten::_local_scalar_dense", [Ref(4)], [3.5], 2),
            Op("aten::index_select", [Ref(3), 0, Ref(6)], [Ref(7)], 3, backward=True, forward=0),
            Op("aten::add_.Tensor", [Ref(1), Ref(3), -0.1], [Ref(1)], 3),
        ],
        Tree("dict", keys=["loss", "rest"], parts=[leaf(Ref(4)), Tree("tuple", parts=[leaf(Ref(7)), leaf(1)])]),
        stacks=[Stack(0, -1), Stack(0, 0), Stack(0, 1), Stack(0, 2)],
        frames=[
            Frame("/me/model.py", 9, "forward", "    return x * self.weight * 2.0"),
            Frame("/me/train.py", 3, "step", "loss = model(x).sum()"),
            Frame("/me/train.py", 4, "step", ""),
        ],
        modules=[Module("model", "Net")],
        bindings=[Binding("grad", 1, 3, cleared=True)],
        constants={6: struct.pack("<qq", 2, 0)},
        notes=["Python's hash seed was not fixed."],
    )
    assert python_source(program) == _TEXT


_TEXT = '''\
# step (train.py:3): 6 ops, recorded 2026-01-01T00:00:00 by torchreel 0.4
# with torch 2.13.0, Python 3.11 on AVX2, 2 threads.
# run(inputs, state) does what it did, without its code: see `run` below.
#
# inputs, a list:
#   x  float32 [3]  input
#
# state, a dict by name; it is changed in place:
#   model.weight  float32 [3]  parameter
#
# Note: Python's hash seed was not fixed.
import torch

aten = torch.ops.aten


def below_autograd(function):
    """The ops are those that autograd called, for forward and backward: it must not hear of them again."""

    def called(*args):
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return function(*args)

    return called


def check(found, recorded, where):
    """The function's Python code saw this number, and went on as it did because of it."""
    if repr(found) != repr(recorded):  # 0.0 and -0.0 are two numbers
        raise RuntimeError(
            f"{where}: the number that left for Python is {found!r}, and was {recorded!r} when this was recorded, "
            "so the ops that follow are not those that the function would run: record it again."
        )
    return found


@below_autograd
def run(inputs, state):
    (x,) = inputs
    model_weight = state["model.weight"]

    # model.py:9 in forward: return x * self.weight * 2.0  [model Net]
    mul = aten.mul.Tensor(x, model_weight)
    mul_1 = aten.mul.Tensor(mul, 2.0); del mul

    # train.py:3 in step: loss = model(x).sum()
    sum_1 = aten.sum.default(mul_1)
    check(aten._local_scalar_dense.default(sum_1), 3.5, "train.py:3 in step: loss = model(x).sum()")

    # train.py:4 in step  [gradient of model.py:9, model Net]
    constant = torch.tensor([2, 0], dtype=torch.int64)
    index_select = aten.index_select.default(mul_1, 0, constant); del constant

    # train.py:4 in step
    aten.add_.Tensor(model_weight, mul_1, alpha=-0.1)

    state["model.weight"].grad = mul_1
    return {"loss": sum_1, "rest": (index_select, 1)}
'''


def test_numbers_that_python_used_are_compared() -> None:
    program = program_of(
        [tensor_slot("input", "x", sizes=())], [Op("aten::_local_scalar_dense", [Ref(0)], [3.5])], leaf(None)
    )
    run = runner(program)
    assert run([torch.tensor(3.5)], {}) is None
    with pytest.raises(
        RuntimeError, match=r"^aten::_local_scalar_dense: the number that left for Python is 4.0, and was"
    ):
        run([torch.tensor(4.0)], {})
    program.ops[0].results = [float("nan")]
    runner(program)([torch.tensor(float("nan"))], {})
    program.ops[0].results = [0.0]
    with pytest.raises(RuntimeError, match=r"is -0\.0, and was 0\.0"):
        runner(program)([torch.tensor(-0.0)], {})


def test_formulas_are_computed_as_python_did() -> None:
    bias = Formula((1.0, 0.9, "item:0", "pow", "sub"), 0.1)
    rate = Formula((0.1, *bias.postfix, "div", "neg"), -1.0)
    program = program_of(
        [
            tensor_slot("captured", "step", sizes=()),
            tensor_slot("input", "x"),
            tensor_slot(storage=2),
            tensor_slot(storage=3),
        ],
        [
            Op("aten::_local_scalar_dense", [Ref(0)], [1.0], guarded=False),
            Op("aten::mul.Tensor", [Ref(1), rate], [Ref(2)]),
            Op("aten::maximum", [Ref(2), bias], [Ref(3)]),
        ],
        Tree("list", parts=[leaf(Ref(2)), leaf(Ref(3)), leaf(rate)]),
    )
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float16)
    for step in (1.0, 7.0):
        expected = -(0.1 / (1.0 - 0.9**step))
        product, larger, number = runner(program)([x], {"step": torch.tensor(step)})
        assert number == expected
        assert torch.equal(product, x * expected)
        assert larger.dtype is torch.float16 and torch.equal(larger, (x * expected).clamp_min(1.0 - 0.9**step))


@pytest.mark.parametrize("number", [2.5, 3, True, Complex(1.0, -2.0), float("inf"), -0.0])
def test_numbers_in_the_place_of_tensors_do_not_widen(number: Any) -> None:
    dtype = {float: "float64", int: "int64", bool: "bool", Complex: "complex128"}[type(number)]
    plain = complex(number.real, number.imag) if isinstance(number, Complex) else number
    for name, takes_it in (("aten::mul.Tensor", True), ("aten::atan2", False)):
        if not takes_it and dtype == "complex128":
            continue
        program = program_of(
            [tensor_slot("input", "x", sizes=(), dtype="uint8"), number_slot(number, dtype), tensor_slot(storage=1)],
            [Op(name, [Ref(0), Ref(1)], [Ref(2)])],
            leaf(Ref(2)),
        )
        assert ("number_of(" in python_source(program)) == (not takes_it)
        for x in (torch.tensor(2, dtype=torch.uint8), torch.tensor(2.0, dtype=torch.bfloat16)):
            found = runner(program)([x], {})
            expected = x * plain if takes_it else torch.ops.aten.atan2.default(x, wrapped(plain))
            assert found.dtype is expected.dtype and torch.equal(found, expected)


def wrapped(number: Any) -> torch.Tensor:
    """As autograd keeps it for the backward pass."""
    product = torch.ones((), dtype=torch.float64, requires_grad=True) * number
    return product.grad_fn._saved_other


def test_the_ops_that_take_numbers_are_those_of_torch() -> None:
    names = {name[6:].partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    taking = {name for name in names if torch._C._should_allow_numbers_as_tensors(name)}
    assert taking == NUMBERS_FOR_TENSORS & names


def test_the_ops_that_are_sized_by_values_are_those_of_torch() -> None:
    names = set()
    for full in torch._C._dispatch_get_all_op_names():
        base, _, overload = full.removeprefix("aten::").partition(".")
        if full.startswith("aten::") and hasattr(torch.ops.aten, base):
            op = getattr(getattr(torch.ops.aten, base), overload or "default", None)
            if op is not None and torch.Tag.dynamic_output_shape in op.tags:
                names.add(base)
    assert names == SIZED_BY_VALUES


def test_sizes_that_depend_on_values_are_compared() -> None:
    program = program_of(
        [tensor_slot("input", "x"), Slot(1, "int64", (2, 1), (1, 2))],
        [Op("aten::nonzero", [Ref(0)], [Ref(1)])],
        leaf(Ref(1)),
    )
    run = runner(program)
    assert run([torch.tensor([1, 0, 1])], {}).tolist() == [[0], [2]]
    with pytest.raises(RuntimeError, match=r"nonzero: the result has the size \[1, 1\], not the recorded \[2, 1\]"):
        run([torch.tensor([1, 0, 0])], {})


CONSTANTS = [
    torch.tensor([True, False]),
    torch.tensor([[1.5, -0.0], [float("inf"), 1e-40]]),
    torch.tensor([float("nan")]),
    torch.tensor(3, dtype=torch.int8),
    torch.arange(1000, dtype=torch.float64),
    torch.arange(24, dtype=torch.float16).reshape(2, 3, 4).permute(2, 0, 1),
    torch.arange(12.0)[3:9:2],
    torch.zeros(0, 3),
    torch.tensor([1 + 2j, -3j]),
    torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    torch.tensor(2**63 - 1),
    torch.ones(2, 1, 3).expand(2, 1, 3),
]


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda constant: f"{constant.dtype} {list(constant.shape)}")
def test_constants_are_made_again_with_all_their_bits(constant: torch.Tensor) -> None:
    dense = constant.contiguous().view(-1)
    content = dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    slot = Slot(
        0,
        str(constant.dtype).removeprefix("torch."),
        tuple(constant.shape),
        constant.stride(),
        constant.storage_offset(),
        role="constant",
        bytes=constant.untyped_storage().nbytes(),
    )
    found = runner(program_of([slot], [], leaf(Ref(0)), constants={0: content}))([], {})
    assert found.dtype is constant.dtype
    assert (found.shape, found.stride(), found.storage_offset()) == (
        constant.shape,
        constant.stride(),
        constant.storage_offset(),
    )
    again = found.contiguous().view(-1)
    assert (again.view(torch.uint8).numpy().tobytes() if again.numel() else b"") == content


def test_arguments_of_all_kinds() -> None:
    program = program_of(
        [
            tensor_slot("input", "x"),
            *(tensor_slot(storage=place) for place in range(1, 7)),
            tensor_slot("constant", storage=7, dtype="int64"),
        ],
        [
            Op(
                "aten::empty.memory_format",
                [[3], Named("dtype", "float32"), Named("layout", "strided"), Device("cpu"), False, None],
                [Ref(1)],
            ),
            Op("aten::copy_", [Ref(1), Ref(0), False], [Ref(1)]),
            Op("aten::random_.from", [Ref(1), 3, 4, None], [Ref(1)]),
            Op("aten::index.Tensor", [Ref(0), [Ref(7)]], [Ref(2)]),
            Op("aten::split.Tensor", [Ref(0), 2, 0], [[Ref(3), Ref(4)]]),
            Op("aten::div.Tensor_mode", [Ref(0), Ref(0), "floor"], [Ref(5)]),
            Op("aten::set_.source_Storage", [Ref(5), StorageOf(0)], [Ref(6)]),
            Op("aten::_foreach_mul_.ScalarList", [[Ref(3), Ref(4)], [2.0, float("inf")]], []),
        ],
        Tree("list", parts=[leaf(Ref(place)) for place in (1, 2, 3, 4, 6)]),
        constants={7: struct.pack("<qqq", 0, 1, 2)},
    )
    x = torch.tensor([1.0, 2.0, 3.0])
    made, same, first, second, of_storage = runner(program)([x], {})
    infinite = float("inf")
    assert made.tolist() == [3.0] * 3
    assert first.tolist() == [2.0, 4.0] and second.tolist() == [infinite]
    assert same.tolist() == [1.0, 2.0, 3.0]
    assert of_storage.data_ptr() == x.data_ptr() and x.tolist() == [2.0, 4.0, infinite]


def test_generators() -> None:
    own = torch.Generator().manual_seed(5)
    torch.manual_seed(11)
    program = program_of(
        [tensor_slot("input", "x"), tensor_slot("constant", storage=7, dtype="uint8", sizes=(5056,))],
        [
            Op("aten::uniform_", [Ref(0), 0.0, 1.0, Generator(0)], [Ref(0)]),
            Op("torchreel::set_rng", [Generator(1), Ref(1)], []),
            Op("aten::add_.Tensor", [Ref(0), Ref(0), 1], [Ref(0)]),
        ],
        leaf(None),
        generators=[
            RandomState("cpu", False, True, own.get_state().numpy().tobytes()),
            RandomState("cpu", True, False, b""),
        ],
        constants={1: torch.get_rng_state().numpy().tobytes()},
    )
    expected = torch.empty(3).uniform_(generator=own) * 2
    after = torch.rand(3)
    for _ in range(2):
        x = torch.empty(3)
        runner(program)([x], {})
        assert torch.equal(x, expected)
        assert torch.equal(torch.rand(3), after)


def test_what_the_function_left_behind() -> None:
    program = program_of(
        [
            tensor_slot("parameter", "w", requires_grad=True),
            tensor_slot("parameter", "b", storage=1),
            tensor_slot("captured", "total", storage=2),
            tensor_slot(storage=3),
        ],
        [
            Op("aten::detach", [Ref(0)], [Ref(0)]),  # the name is another object from here on
            Op("aten::neg", [Ref(0)], [Ref(3)]),
        ],
        leaf(None),
        bindings=[Binding("grad", 0, 3), Binding("grad", 1, -1), Binding("copy", 2, 3), Binding("data", 1, 3)],
    )
    w, b, total = (torch.ones(3, requires_grad=True) for _ in range(3))
    b.grad = torch.ones(3)
    address = total.data_ptr()
    runner(program)([], {"w": w, "b": b, "total": total})
    assert w.grad is not None and w.grad.tolist() == [-1.0] * 3
    assert b.grad is None and b.tolist() == [-1.0] * 3
    assert total.tolist() == [-1.0] * 3 and total.data_ptr() == address
    with pytest.raises(RuntimeError, match="has a gradient, and had none when this was recorded"):
        runner(program)([], {"w": w, "b": b, "total": total})
    program.bindings[0].cleared = True
    runner(program)([], {"w": w, "b": b, "total": total})


def test_each_tensor_is_freed_after_its_last_use() -> None:
    count = 20
    slots = [tensor_slot("input", "x"), *(tensor_slot(storage=place + 1) for place in range(count))]
    ops = [Op("aten::neg", [Ref(place)], [Ref(place + 1)]) for place in range(count)]
    run = runner(program_of(slots, ops, leaf(Ref(count))))
    alive: list[int] = []
    made: weakref.WeakSet[Any] = weakref.WeakSet()

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            made.add(result)
            alive.append(len(made))
            return result

    x = torch.ones(3)
    with Counting():
        run([x], {})
    assert len(alive) == count and max(alive) == 2


def test_a_custom_op_is_called_by_its_own_namespace() -> None:
    with torch.library._scoped_library("tapetest", "DEF") as library:
        library.define("scaled.by(Tensor x, *, float from=1.) -> Tensor")
        library.impl("scaled.by", lambda x, **given: x * given["from"], "CPU")
        program = program_of(
            [tensor_slot("input", "x"), tensor_slot(storage=1)],
            [Op("tapetest::scaled.by", [Ref(0), 3.0], [Ref(1)])],
            leaf(Ref(1)),
        )
        assert runner(program)([torch.ones(3)], {}).tolist() == [3.0] * 3


def test_any_program_makes_text_that_python_reads() -> None:
    ast.parse(python_source(small_program()))


EVIL = 'x\n    import os  # "\' \\ """ \r\x0b\x0c\x1c\x85\u2028 {0} \x00'


def test_text_from_a_file_stays_text() -> None:
    program = small_program()
    expected = len(list(ast.walk(ast.parse(python_source(program)))))
    program.provenance = Provenance(*([EVIL] * 6))
    program.notes = [EVIL]
    program.objects = [EVIL]
    program.frames = [Frame(EVIL, 1, EVIL, EVIL), Frame(EVIL, 2, EVIL, EVIL)]
    program.modules = [Module(EVIL, EVIL)]
    program.inputs = [Input(EVIL, 0)]
    program.slots[1].name = EVIL
    program.outputs.keys = [EVIL, EVIL]
    text = python_source(program)
    tree = ast.parse(text)
    assert len(list(ast.walk(tree))) == expected
    assert not any(isinstance(node, ast.alias) and node.name == "os" for node in ast.walk(tree))


@pytest.mark.parametrize("name", ["aten::add.T)", "aten::x y", "a b::c", "aten::", "::add", "aten::é", EVIL])
def test_names_of_ops_are_names(name: str) -> None:
    program = small_program()
    program.ops[0].name = name
    with pytest.raises(CorruptTapeError, match="in the tape is no name that torch has"):
        python_source(program)


@pytest.mark.parametrize("postfix", [(), ("sub",), (1.0, 2.0), (1.0, "exec", 2.0), ("item:x",), ("item:99",)])
def test_formulas_that_make_no_sense(postfix: tuple[float | str, ...]) -> None:
    program = small_program()
    program.ops[5].args[1] = Formula(postfix, 1.0)
    with pytest.raises(CorruptTapeError, match="makes no sense"):
        python_source(program)


@pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:torch.quantize")
def test_the_numbers_of_dtypes_are_those_of_torch() -> None:
    for name, number in DTYPE_NUMBERS.items():
        dtype = getattr(torch, name)
        assert number_of(dtype) == number, name


def number_of(dtype: torch.dtype) -> int:
    """TorchScript has dtypes as numbers."""
    graph = torch._C.parse_ir("graph(%x : Tensor):\n  %1 : int = prim::dtype(%x)\n  return (%1)")
    function = torch._C._create_function_from_graph("f", graph)
    return int(function(torch.empty(0, dtype=dtype)))
