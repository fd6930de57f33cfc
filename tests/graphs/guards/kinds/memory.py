"""Memory that Python and torch both see, shapes changed in place, changes between a forward and its backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.graphs.guards.kinds.registry import Box, enter, kind
from tests.graphs.guards.lockstep import Case, Change, Given, sample

Tensor = torch.Tensor


@kind
def array_over_a_result_that_is_written_later() -> Any:
    """What NumPy reads is not what was there when the array was made."""

    def function(x: Tensor) -> Tensor:
        y = torch.zeros(3)
        seen = y.numpy()
        y.add_(x)
        return x * float(seen[0])

    return function


@kind
def array_made_inside_that_torch_writes() -> Any:
    def function(x: Tensor) -> Tensor:
        made = numpy.zeros(3, dtype=numpy.float32)
        torch.from_numpy(made).add_(x)
        return x * float(made[0])

    return function


@kind
def array_over_an_argument_that_is_written_later() -> Any:
    def function(x: Tensor, y: Tensor) -> Tensor:
        seen = y.numpy()
        y.mul_(0).add_(x)
        return x * float(seen.sum())

    return Case(function, given=lambda n: Given(sample(n), torch.ones(3)))


@kind
def list_made_before_a_write() -> Any:
    def function(x: Tensor) -> Tensor:
        y = torch.zeros(3)
        before = y.tolist()
        y.add_(x)
        return x * (before[0] + y.tolist()[0])

    return function


@kind
def size_that_depends_on_values() -> Any:
    return Case(lambda x: x * x[x > 0].numel() + len(torch.nonzero(x)) + torch.unique(x.round()).shape[0])


@kind
def loop_whose_length_depends_on_values() -> Any:
    def function(x: Tensor) -> Tensor:
        for row in x[x > 0]:
            x = x + row
        return x

    return function


@kind
def state_of_another_shape_that_is_looped_over() -> Any:
    box = Box(rows=torch.ones(2, 3))

    def function(x: Tensor) -> Tensor:
        for row in box.rows:
            x = x * 2 + row
        return x

    change = Change(
        lambda: setattr(box, "rows", torch.ones(3, 3)),
        lambda: setattr(box, "rows", torch.ones(2, 3)),
    )
    return function, change


_IN_PLACE: dict[str, Callable[[Tensor], Any]] = {
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "t_": lambda x: x.t_(),
    "squeeze_": lambda x: x.squeeze_(),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "requires_grad_": lambda x: x.requires_grad_(),
    "requires_grad": lambda x: setattr(x, "requires_grad", True),
    "detach_": lambda x: x.detach_(),
    "data": lambda x: setattr(x, "data", x.data * 2),
    "resize_": lambda x: x.resize_(1, 2),
    "as_strided_": lambda x: x.as_strided_((2,), (1,)),
    "zero_": lambda x: x.zero_(),
    "names": lambda x: x.rename_("a", "b"),
    "retain_grad": lambda x: x.requires_grad_().retain_grad(),
    "hook": lambda x: x.requires_grad_().register_hook(lambda gradient: gradient),
    "copy_": lambda x: x.copy_(x.flip(0)),
    "index": lambda x: x.__setitem__(0, 1.0),
    "set_": lambda x: x.set_(torch.ones(2, 2)),
}


def _of_an_argument(change: Callable[[Tensor], Any]) -> Case:
    def function(x: Tensor) -> Any:
        change(x)
        return (x.detach() * 2).rename(None)

    return Case(function, given=lambda n: Given(sample(n, 1, 3)))


def _of_state(change: Callable[[Tensor], Any]) -> Case:
    state = torch.ones(2, 3)

    def function(x: Tensor) -> Any:
        change(state)
        return x * state.numel()

    return Case(function, observe=lambda: state)


for _name, _change in _IN_PLACE.items():
    enter(f"{_name} done to an argument", lambda change=_change: _of_an_argument(change), brief=True)
    enter(f"{_name} done to state", lambda change=_change: _of_state(change), brief=True)


def _before_the_backward(function: Any, box: Any, *state: Any) -> Case:
    """What a backward reads is what is there when it runs, and not what was there at the forward."""

    def use(out: Tensor) -> None:
        box.k += 1
        out.pow(2).sum().backward()

    return Case(function, use=use, observe=lambda: (box, *state))


@kind
def state_changed_before_the_backward_of_a_function_of_autograd() -> Any:
    box, w = Box(k=1.0), torch.ones(3, requires_grad=True)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.box = box
            return x * box.k

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * ctx.box.k

    return _before_the_backward(lambda x: Scaled.apply(w * x), box, w)


@kind
def state_changed_before_the_backward_of_a_hook() -> Any:
    box, w = Box(k=1.0), torch.ones(3, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        y = w * x
        y.register_hook(lambda gradient: gradient * box.k)
        return y * 2

    return _before_the_backward(function, box, w)


@kind
def state_changed_before_the_backward_of_a_checkpoint() -> Any:
    box, w = Box(k=1.0), torch.ones(3, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        return checkpoint(lambda y: (y * w).sin() * box.k, x, use_reentrant=False)  # type: ignore[no-any-return]

    return _before_the_backward(function, box, w)


@kind
def state_changed_before_the_backward_of_nothing_special() -> Any:
    """A plain backward reads no state: the factor is that of the forward."""
    box, w = Box(k=1.0), torch.ones(3, requires_grad=True)
    return _before_the_backward(lambda x: (w * x).sin() * box.k, box, w)


@kind
def gradients_switched_off_before_the_backward() -> Any:
    w = torch.ones(3, requires_grad=True)

    def use(out: Tensor) -> None:
        with torch.no_grad():
            out.backward(torch.ones(3))

    return Case(lambda x: (w * x).sin(), use=use, observe=lambda: w)


@kind
def backward_in_another_thread() -> Any:
    import threading

    w = torch.ones(3, requires_grad=True)

    def use(out: Tensor) -> None:
        worker = threading.Thread(target=lambda: out.sum().backward())
        worker.start()
        worker.join()

    return Case(lambda x: (w * x).sin(), use=use, observe=lambda: w)


@kind
def random_numbers_between_a_forward_and_its_backward() -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))

    def use(out: Any) -> None:
        torch.rand(3)
        out[1].pow(2).sum().backward()

    def function(x: Tensor) -> Any:
        y = model(x)
        return y.sum(), y * 2, y.detach()

    return Case(function, given=lambda n: Given(sample(n, 2, 3)), use=use, observe=lambda: model)


@kind
def autocast_that_spans_the_calls() -> Any:
    """The casts of weights are kept until it ends, also where a weight has been written since."""
    model = nn.Linear(3, 3)
    mode = torch.autocast("cpu", dtype=torch.bfloat16)
    mode.__enter__()

    def write(k: float) -> Callable[[], None]:
        def change() -> None:
            with torch.no_grad():
                model.weight.mul_(k)

        return change

    return Case(
        model,
        [Change(write(2.0), write(0.5), idle=True)],
        given=lambda n: Given(sample(n, 2, 3)),
        observe=lambda: model,
        close=lambda: mode.__exit__(None, None, None),
    )


def _left(set_to: Callable[[], Any], set_back: Callable[[], Any], ask: Callable[[], Any]) -> Case:
    """A flag of torch that the function sets, and leaves so."""

    def function(x: Tensor) -> Tensor:
        set_to()
        return x * 2

    return Case(function, [Change(set_back, idle=True)], observe=ask, close=set_back)


_LEFT: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]] = {
    "autocast": (
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_autocast_enabled("cpu", False),
        lambda: torch.is_autocast_enabled("cpu"),
    ),
    "autocast's dtype": (
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
        lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
        lambda: torch.get_autocast_dtype("cpu"),
    ),
    "autocast's cache": (
        lambda: torch.set_autocast_cache_enabled(False),
        lambda: torch.set_autocast_cache_enabled(True),
        torch.is_autocast_cache_enabled,
    ),
    "deterministic algorithms": (
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
        torch.are_deterministic_algorithms_enabled,
    ),
    "precision": (
        lambda: torch.set_float32_matmul_precision("high"),
        lambda: torch.set_float32_matmul_precision("highest"),
        torch.get_float32_matmul_precision,
    ),
    "anomalies": (
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autograd.set_detect_anomaly(False),
        torch.is_anomaly_enabled,
    ),
    "cuDNN": (
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
        lambda: setattr(torch.backends.cudnn, "benchmark", False),
        lambda: torch.backends.cudnn.benchmark,
    ),
    "random state": (
        lambda: torch.set_rng_state(torch.Generator().manual_seed(5).get_state()),
        lambda: torch.manual_seed(3),
        torch.initial_seed,
    ),
}
for _name, _flags in _LEFT.items():
    enter(f"{_name} that the function leaves set", lambda flags=_flags: _left(*flags), brief=True)

_BACKENDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "cudnn.benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        lambda on: setattr(torch.backends.cudnn, "benchmark", on),
    ),
    "cudnn.deterministic": (
        lambda: torch.backends.cudnn.deterministic,
        lambda on: setattr(torch.backends.cudnn, "deterministic", on),
    ),
    "cudnn.enabled": (
        lambda: torch.backends.cudnn.enabled,
        lambda on: setattr(torch.backends.cudnn, "enabled", on),
    ),
    "cudnn.allow_tf32": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda on: setattr(torch.backends.cudnn, "allow_tf32", on),
    ),
    "cuda.matmul.allow_tf32": (
        lambda: torch.backends.cuda.matmul.allow_tf32,
        lambda on: setattr(torch.backends.cuda.matmul, "allow_tf32", on),
    ),
    "flash attention": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "attention by formula": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    "attention with little memory": (
        torch.backends.cuda.mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
    ),
    "attention of cuDNN": (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    "deterministic, warnings only": (
        torch.is_deterministic_algorithms_warn_only_enabled,
        lambda on: torch.use_deterministic_algorithms(on, warn_only=True),
    ),
    "autocast's cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "memory that is filled": (
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
        lambda on: setattr(torch.utils.deterministic, "fill_uninitialized_memory", on),
    ),
    "multithreading of autograd": (
        lambda: torch._C._is_multithreading_enabled(),
        lambda on: torch.autograd.set_multithreading_enabled(on).__enter__(),
    ),
}  # fmt: skip


def _of_a_backend(ask: Callable[[], Any], put: Callable[[Any], Any]) -> Any:
    before = bool(ask())

    def function(x: Tensor) -> Tensor:
        return x * (2.0 if ask() else 3.0)

    return Case(function, [Change(lambda: put(not before), lambda: put(before))])


for _name, (_ask, _put) in _BACKENDS.items():
    enter(f"{_name} asked for", lambda ask=_ask, put=_put: _of_a_backend(ask, put), brief=True)
