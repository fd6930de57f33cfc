"""Calls of PyTorch's database of ops through `torchreel.graphed`, each held to eager on the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import torchreel
from tests.tape.op_database import UNSTEADY, UNWRITTEN, Call, Outcome, Way, difference, outcome, samples, title

_CALLS = 4  # warm-up, recording, two replays
DIFFERENTIABLE = (torch.float32, torch.float64)


@dataclass
class Tally:
    """How many samples were run, and how many of them by a graph in the end."""

    samples: int = 0
    replayed: int = 0
    unlike: list[str] = field(default_factory=list)


def ways(op: Any, dtypes: tuple[torch.dtype, ...]) -> Iterator[Way]:
    supported = set(op.supported_dtypes("cpu"))
    backward = set(op.supported_backward_dtypes("cpu")) if op.supports_autograd else set()
    chosen = [dtype for dtype in dtypes if dtype in supported] or sorted(supported, key=str)[:1]
    for dtype in chosen:
        yield Way(dtype)
        if dtype in backward and dtype in DIFFERENTIABLE:
            yield Way(dtype, backward=True)
    for dtype in chosen[:1]:
        yield Way(dtype, gaps=True)
        if op.inplace_variant is not None:
            yield Way(dtype, in_place=True)


def check(op: Any, way: Way, most: int | None, tally: Tally) -> None:
    """Runs the samples of the op in this way; what is not as eager has it is added to the tally."""
    for place, sample in enumerate(samples(op, way, most)):
        unlike = _check_sample(op, way, sample, tally)
        if unlike:
            tally.unlike.append(f"{title(op)}, {way}, sample {place}: {unlike}")


def _check_sample(op: Any, way: Way, sample: tuple[Any, ...], tally: Tally) -> str:
    call = Call(op, way, sample)
    function = op.inplace_variant if way.in_place else op.op

    def plain(first: Any, args: Any, kwargs: Any) -> Any:
        return function(first, *args, **kwargs)

    try:
        call.weigh()
        _run(call, way, plain, False)
    except Exception:
        return ""  # a sample that eager does not take: not ours
    graphed = torchreel.graphed(plain)
    for number in range(_CALLS):
        turned = bool(number % 2)
        try:
            wanted = _run(call, way, plain, turned)
        except Exception:
            turned = False
            wanted = _run(call, way, plain, turned)
        try:
            found = _run(call, way, graphed, turned)
        except Exception as error:
            return f"call {number + 1} raised {type(error).__name__}: {str(error)[:300]}"
        unlike = difference(wanted, found, values=op.name not in UNWRITTEN | UNSTEADY)
        if unlike:
            return f"call {number + 1}: {unlike}"
    tally.samples += 1
    tally.replayed += graphed.replays() > 0
    return ""


def _run(call: Call, way: Way, function: Callable[..., Any], turned: bool) -> Outcome:
    """One call on new copies, and the gradients of its inputs: the backward is the caller's."""
    *arguments, weights = call.arguments(turned)
    with torch.set_grad_enabled(way.backward):
        out = function(*arguments)
    results = call._differentiable(out) if way.backward else []
    leaves = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not results or not leaves:
        return outcome(out, arguments)
    return outcome((out, torch.autograd.grad(results, leaves, weights, allow_unused=True)), arguments)
