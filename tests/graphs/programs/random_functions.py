"""Random functions of ops, for graphs to be held to: what a function does is drawn once, as a list of moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

Tensors = list[torch.Tensor]
Move = tuple[str, int, int, int]  # what is done, to which values, and a number to do it with
_MOST = 64  # elements of a value, or it is summed


def _view(x: torch.Tensor, number: int) -> torch.Tensor:
    kind = number % 6
    if x.dim() == 0:
        return x.expand(2) if kind % 2 else x.view(1)
    if kind == 0:
        return x.transpose(0, -1)
    if kind == 1:
        return x[number % x.shape[0] :] if x.shape[0] else x
    if kind == 2:
        return x.unsqueeze(number % (x.dim() + 1))
    if kind == 3:
        return x.reshape(-1)
    if kind == 4:
        return x[..., ::2]
    return x.flatten().unsqueeze(0).expand(2, -1) if x.numel() < 16 else x.detach()


def _in_place(x: torch.Tensor, y: torch.Tensor, number: int) -> torch.Tensor:
    x = x.clone() if number % 2 or x.requires_grad or not _can_be_written(x) else x
    if x.dim() and x.shape[0] and number % 3 == 0:
        x[0].mul_(0.5)
    elif number % 3 == 1 and _fits(y, x):
        x.add_(y.detach())
    else:
        x.tanh_()
    return x


def _can_be_written(x: torch.Tensor) -> bool:
    return not torch._debug_has_internal_overlap(x) and x.is_leaf


def _fits(small: torch.Tensor, large: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(small.shape, large.shape) == large.shape
    except RuntimeError:
        return False


def _product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, b = x.reshape(-1, x.shape[-1] if x.dim() and x.shape[-1] else 1), y.reshape(-1)
    need = a.shape[1]
    b = b.repeat(need // max(b.numel(), 1) + 1)[:need] if b.numel() else a.new_ones(need)
    return a @ torch.stack([b, b * 2], 1)


def _together(x: torch.Tensor, y: torch.Tensor, number: int) -> torch.Tensor:
    joined = torch.cat([x.reshape(-1), y.reshape(-1)])
    if number % 3 == 0 or joined.numel() < 2:
        return joined
    first, second = joined.split([joined.numel() // 2, joined.numel() - joined.numel() // 2])
    return torch.stack([first, second[: first.numel()]]) if number % 3 == 1 else second * 2


_POINTWISE: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.sin, torch.tanh, torch.relu, torch.exp, torch.neg, torch.abs, torch.sigmoid,
    torch.nn.functional.gelu, lambda x: x * 2, lambda x: 1 - x, lambda x: x.clamp(-1, 1), lambda x: x.sqrt(),
    lambda x: x.to(torch.bfloat16).to(x.dtype), lambda x: torch.where(x > 0, x, x * 0.1), lambda x: x.contiguous(),
]  # fmt: skip
_REDUCTIONS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.sum, torch.mean, lambda x: x.sum(-1) if x.dim() else x, lambda x: x.softmax(-1) if x.dim() else x,
    lambda x: x.amax(0) if x.dim() and x.shape[0] else x, lambda x: x.cumsum(-1) if x.dim() else x,
    lambda x: x.var(0, correction=0) if x.dim() else x, lambda x: x.logsumexp(-1) if x.dim() else x,
]  # fmt: skip
_DRAWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.rand_like, lambda x: torch.nn.functional.dropout(x, 0.5), lambda x: x + torch.randn(x.shape),
    lambda x: torch.bernoulli(torch.full_like(x, 0.5).detach()),
]  # fmt: skip


def _done(move: Move, values: Tensors, weights: Tensors) -> torch.Tensor:
    what, first, second, number = move
    x, y = values[first % len(values)], values[second % len(values)]
    if what == "pointwise":
        return _POINTWISE[number % len(_POINTWISE)](x)
    if what == "binary":
        y = y if _fits(y, x) or _fits(x, y) else y.sum()
        return [torch.add, torch.mul, torch.sub, torch.maximum][number % 4](x, y)
    if what == "view":
        return _view(x, number)
    if what == "in place":
        return _in_place(x, y, number)
    if what == "product":
        return _product(x, y)
    if what == "reduction":
        return _REDUCTIONS[number % len(_REDUCTIONS)](x)
    if what == "together":
        return _together(x, y, number)
    if what == "weight":
        return x.sum() * weights[number % len(weights)]
    return _DRAWS[number % len(_DRAWS)](x)


_WHAT = ["pointwise", "pointwise", "binary", "binary", "view", "in place", "product", "reduction", "together"]

moves = st.lists(
    st.tuples(
        st.sampled_from([*_WHAT, "weight", "draw"]), st.integers(0, 9), st.integers(0, 9), st.integers(0, 59)
    ),
    min_size=1,
    max_size=10,
)  # fmt: skip
outputs = st.lists(st.integers(0, 20), min_size=1, max_size=3)


def function_of(steps: list[Move], returned: list[int], weights: Tensors) -> Callable[..., Any]:
    """Takes tensors and gives some of the values that it made of them; `weights` are closed over."""

    def function(*inputs: torch.Tensor) -> Any:
        values = list(inputs)
        for move in steps:
            made = _done(move, values, weights)
            values.append(made if made.numel() <= _MOST else made.sum(0))
        chosen = [values[-1 - place % len(values)] for place in returned]
        return chosen[0] if len(chosen) == 1 else tuple(chosen)

    return function
