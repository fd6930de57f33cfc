"""The generated wrappers and the boxed fallback: whichever records a call, the tape is the same."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from benchmarks.hot import layers, methods, networks, optimizers, pretrained

import torchreel
from tests.tape.op_database import Call, Way, database, samples, title
from torchreel import _tape
from torchreel.program.model import Frame, Program
from torchreel.tape.rules.hot_ops import hot_ops

SHARE = 24  # one of so many ops is tried in short runs
FLOAT = torch.float32
SCRIPTED = {"deberta_v2"}  # TorchScript compiles while it runs, and calls other ops the first times
# A dispatch mode, with which the hot set was counted, makes composite ops take paths that they take for subclasses.
ONLY_UNDER_A_MODE = {"aten::_ctc_loss.Tensor", "aten::_ctc_loss_backward.Tensor", "aten::index_add"}


@pytest.fixture(autouse=True)
def _wrappers_afterwards() -> Iterator[None]:
    yield
    _tape.use_wrappers(True)


def both(function: Callable[..., Any], arguments: Callable[[], list[Any]]) -> tuple[Any, Any]:
    """What is on the tape of a call, recorded by wrappers and by the fallback; a refusal is a sentence."""
    return _recorded(function, arguments(), True), _recorded(function, arguments(), False)


def _recorded(function: Callable[..., Any], arguments: list[Any], wrappers: bool) -> Any:
    _tape.use_wrappers(wrappers)
    torch.manual_seed(0)
    np.random.seed(0)  # some models draw from it
    try:
        return torchreel.trace(function, *arguments).program
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def text_of(program: Program | str) -> bytes:
    """All that a program says but when it was recorded: as bytes, because a NaN is not equal to itself."""
    if isinstance(program, str):
        return program.encode()
    plain = msgspec.structs.replace(
        program,
        ops=[msgspec.structs.replace(op, time_ns=0, stack=0) for op in program.ops],
        provenance=msgspec.structs.replace(program.provenance, made=""),
        stacks=[],  # numbered as they come, also by ops that are not kept
        frames=[],
    )
    return msgspec.msgpack.encode((plain, [lines_of(program, op.stack) for op in program.ops]), enc_hook=str)


def lines_of(program: Program, stack: int) -> list[Frame]:
    """A stack as its frames, the innermost first."""
    frames = []
    while stack != 0:
        frames.append(program.frames[program.stacks[stack].frame])
        stack = program.stacks[stack].parent
    return frames


def difference(fast: Program | str, boxed: Program | str) -> str:
    """The first thing in which they are not the same, in words that fit on a screen."""
    if isinstance(fast, str) or isinstance(boxed, str):
        return f"One is refused: {fast!s:.300} | {boxed!s:.300}"
    for place, (one, other) in enumerate(zip(fast.ops, boxed.ops, strict=False)):
        for field in one.__struct_fields__:
            if field not in ("time_ns", "stack") and repr(getattr(one, field)) != repr(getattr(other, field)):
                return f"Op {place}, {field}: {one!s:.500} | {other!s:.500}"
        if lines_of(fast, one.stack) != lines_of(boxed, other.stack):
            return f"Op {place}, {one.name}, has another stack."
    fields = [name for name in fast.__struct_fields__ if repr(getattr(fast, name)) != repr(getattr(boxed, name))]
    return f"They differ in {', '.join(fields)}, with {len(fast.ops)} and {len(boxed.ops)} ops."


def check(function: Callable[..., Any], arguments: Callable[[], list[Any]]) -> set[str]:
    """Hold the two tapes against each other, and return the ops of the hot set that are on them."""
    fast, boxed = both(function, arguments)
    if text_of(fast) != text_of(boxed):
        pytest.fail(difference(fast, boxed))
    return set() if isinstance(fast, str) else {op.name for op in fast.ops} & hot_ops()


def check_op(op: Any, most: int | None = None) -> set[str]:
    """All samples, or so many, of an op: with gradients and without, in place, and without autograd."""
    found: set[str] = set()
    dtypes = op.supported_dtypes("cpu")
    if not dtypes:  # of another device
        return found
    dtype = FLOAT if FLOAT in dtypes else sorted(dtypes, key=str)[0]
    backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for way in (Way(dtype, backward=backward), Way(dtype, in_place=True)):
        if way.in_place and op.inplace_variant is None:
            continue
        for sample in samples(op, way, most):
            call = Call(op, way, sample)
            try:
                call.weigh()
                call(*call.arguments())
            except Exception:  # refused without a tape as well
                continue
            found |= check(call, call.arguments)
            if not way.backward:
                continue
            plain = Call(op, Way(dtype), sample)
            found |= check(_without_autograd(plain), plain.arguments)
    return found


def _without_autograd(call: Call) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        with torch.inference_mode():
            return call(*arguments)

    return function


def in_short_runs(op: Any) -> bool:
    return zlib.crc32(title(op).encode()) % SHARE == 0


@pytest.mark.filterwarnings("ignore")
def test_some_ops_are_recorded_alike() -> None:
    found: set[str] = set()
    for op in database():
        if in_short_runs(op):
            found |= check_op(op, most=2)
    assert len(found) > 50


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_all_ops_are_recorded_alike() -> None:
    found: set[str] = set()
    for op in database():
        found |= check_op(op)
    assert len(found) > 0.6 * len(hot_ops())


OPTIMIZERS = dict(optimizers.programs())
SOME = ("SGD lr=0.1 foreach=True", "Adam fused=True")
MORE = ("SGD lr=0.1 fused=True", "Adam foreach=False", "Rprop foreach=True")


@pytest.mark.parametrize("name", [*SOME, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)])
def test_optimizers_are_recorded_alike(name: str) -> None:
    """Lists of tensors, lists of numbers, and ops that return nothing. The other ones are in the hot set, below."""
    check(OPTIMIZERS[name], list)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_programs_of_the_hot_set_are_recorded_alike() -> None:
    """GIVEN the programs that the hot set was counted on THEN each of its ops is on one of their tapes."""
    pytest.importorskip("transformers")
    found: set[str] = set()
    for family in (pretrained, networks, optimizers, layers, methods):
        for name, program in family.programs():
            for _ in range(2 if name in SCRIPTED else 0):
                program()
            found |= check(program, list)
    assert hot_ops() - found <= ONLY_UNDER_A_MODE


def test_wrappers_can_be_switched_off_and_on_again() -> None:
    """GIVEN either way of recording WHEN nothing is traced THEN ops compute as they always do."""
    for wrappers in (False, True, True, False):
        _tape.use_wrappers(wrappers)
        x = torch.arange(3.0)
        assert (x + x).tolist() == [0, 2, 4]
        tape = torchreel.trace(lambda x: x + x, x)
        assert [op.name for op in tape.program.ops] == ["aten::add.Tensor"]


def test_an_op_that_fails_is_not_on_the_tape() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(RuntimeError, match="must match the size"):
            x.add(torch.zeros(7))
        return x.mul(2)

    fast, boxed = both(function, lambda: [torch.zeros(3)])
    assert [op.name for op in fast.ops][-1] == "aten::mul.Tensor"
    assert text_of(fast) == text_of(boxed)
