"""The ways to make a function fast: torchreel.graphed, the modes of torch.compile, AOTInductor; and eager as it is.

Each gets a program of its own, with the same weights, so that one never sees what another left behind.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from benchmarks.graphs_workloads import Function, Program, Workload

EAGER = "eager"
GRAPHED = "graphed"
RELAXED = "graphed, exact=False"
AOTI = "AOTInductor"
AOTI_RAW = "AOTInductor, raw loader"

COMPILE_OPTIONS: dict[str, dict[str, Any]] = {
    "compile": {},
    "compile, reduce-overhead": {"mode": "reduce-overhead"},
    "compile, max-autotune": {"mode": "max-autotune-no-cudagraphs"},
    "compile, cpp_wrapper": {"options": {"cpp_wrapper": True}},
}

OURS = (GRAPHED, RELAXED)
# To warm up, to record, and to replay twice: an output that a replay wrote over would show.
CALLS_COMPARED = 4

_numbers = itertools.count()


@dataclass(frozen=True)
class Ready:
    """A program that has been made fast, and has been seen to give the same as eager."""

    program: Program
    call: Function
    inputs: tuple[Any, ...]


@dataclass(frozen=True)
class Failed:
    reason: str


def ready(variant: str, workload: Workload) -> Ready | Failed:
    """The best of the ways to use this variant; what fails says why, and the others are still measured."""
    makes = (workload.make, *workload.parts) if variant in COMPILE_OPTIONS else (workload.make,)
    made, reasons = [], []
    for make in makes:
        try:
            made.append(_ready(variant, make))
        except Exception as error:
            first = str(error).strip().splitlines() or [""]
            reasons.append(f"{type(error).__name__}: {first[0]}"[:160])
    if not made:
        return Failed(reasons[0])
    return made[0] if len(made) == 1 else min(made, key=_time)


def _ready(variant: str, make: Callable[[], Program]) -> Ready:
    expected = outcome(_made(EAGER, make))
    one = _made(variant, make)
    exact = variant in (EAGER, GRAPHED)
    for mine, other in zip(outcome(one), expected, strict=True):
        if exact and not same_bits(mine, other):
            raise RuntimeError(f"{variant} is not bit for bit what eager gives")
        if not exact and not torch.allclose(mine, other, rtol=1e-3, atol=1e-4):
            raise RuntimeError(f"{variant} differs from eager by {(mine - other).abs().max().item():.3g}")
    return one


def _made(variant: str, make: Callable[[], Program]) -> Ready:
    program = make()
    if variant == AOTI:
        return Ready(program, _aot_inductor(make), program.inputs)
    if variant == AOTI_RAW:
        return Ready(program, _aot_inductor(make).loader.run, (list(program.inputs),))
    return Ready(program, program.placed(_faster(variant, program)), program.inputs)


def _faster(variant: str, program: Program) -> Function:
    if variant == EAGER:
        return program.function
    if variant in OURS:
        import torchreel

        options: dict[str, Any] = {} if variant == GRAPHED else {"exact": False}
        graphed: Function = torchreel.graphed(program.function, **options)
        return graphed
    compiled: Function = torch.compile(_own_code(program.function), **COMPILE_OPTIONS[variant])
    return compiled


def _own_code(function: Function) -> Function:
    """The function with code of its own: variants that share it would also share, and search, one cache of Dynamo's."""
    called = function
    if isinstance(called, nn.Module):

        def through(*arguments: Tensor) -> Any:
            return function(*arguments)

        called = through
    assert isinstance(called, types.FunctionType)
    code = called.__code__.replace(co_name=f"{called.__name__}_{next(_numbers)}")
    return types.FunctionType(code, called.__globals__, code.co_name, called.__defaults__, called.__closure__)


@functools.cache
def _aot_inductor(make: Callable[[], Program]) -> Any:
    """Made once for both ways to call it: nothing takes longer than this."""
    program = make()
    if not isinstance(program.function, nn.Module):
        raise TypeError("only a module can be exported")
    with tempfile.TemporaryDirectory() as directory, torch.no_grad():
        exported = torch.export.export(program.function, program.inputs)
        path = torch._inductor.aoti_compile_and_package(exported, package_path=str(Path(directory, "model.pt2")))
        return torch._inductor.aoti_load_package(path, run_single_threaded=True)


def outcome(one: Ready) -> list[Tensor]:
    """What several calls from the beginning give, and what state they leave."""
    one.program.rewind()
    with torch.inference_mode(one.program.inference):
        results = [one.call(*one.inputs) for _ in range(CALLS_COMPARED)]
    return [tensor.detach().clone() for tensor in _tensors((results, list(one.program.state)))]


def _tensors(values: Any) -> Iterator[Tensor]:
    return (leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor))


def same_bits(mine: Tensor, other: Tensor) -> bool:
    """Whether all values are equal, where NaN equals NaN."""
    if torch.equal(mine, other):
        return True
    return torch.equal(mine.isnan(), other.isnan()) and torch.equal(mine.nan_to_num(), other.nan_to_num())


def _time(one: Ready) -> float:
    from benchmarks.graphs_windows import calls_in, window

    return window(one, calls_in(one))
