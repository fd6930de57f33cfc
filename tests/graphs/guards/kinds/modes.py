"""The state of torch around a call and within it: modes, flags, random numbers, ops of one's own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.graphs.guards.kinds.registry import Box, attribute, backward, enter, kind
from tests.graphs.guards.lockstep import Case, Change, Given, sample

Tensor = torch.Tensor
_numbers = itertools.count()


def _flag(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Change:
    before = get()
    return Change(lambda: put(value), lambda: put(before))


def _mixed() -> tuple[Any, nn.Module]:
    """Something that most flags have a part in."""
    model = nn.Linear(3, 3)

    def function(x: Tensor) -> Any:
        y = model(x)
        return y, y.softmax(-1) @ y.t(), torch.ones(2) * 0.5, torch.tensor([0.5])

    return function, model


def _batch(number: int) -> Given:
    return Given(sample(number, 2, 3))


_FLAGS: dict[str, Callable[[], Change]] = {
    "default dtype": lambda: _flag(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "gradients": lambda: _flag(torch.is_grad_enabled, torch.set_grad_enabled, False),
    "autocast": lambda: Change(
        lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.set_autocast_enabled("cpu", False)
    ),
    "autocast to float16": lambda: Change(
        lambda: (torch.set_autocast_dtype("cpu", torch.float16), torch.set_autocast_enabled("cpu", True)),
        lambda: (torch.set_autocast_dtype("cpu", torch.bfloat16), torch.set_autocast_enabled("cpu", False)),
    ),
    "default device": lambda: Change(lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
}
_IDLE_FLAGS: dict[str, Callable[[], Change]] = {
    "threads": lambda: _flag(torch.get_num_threads, torch.set_num_threads, 3),
    "deterministic algorithms": lambda: _flag(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "precision of products": lambda: _flag(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "oneDNN": lambda: _flag(
        lambda: torch.backends.mkldnn.enabled, lambda on: setattr(torch.backends.mkldnn, "enabled", on), False
    ),
    "denormals": lambda: Change(lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False)),
    "anomalies": lambda: Change(
        lambda: torch.autograd.set_detect_anomaly(True), lambda: torch.autograd.set_detect_anomaly(False)
    ),
}


def _of_a_flag(make: Callable[[], Change], idle: bool) -> Case:
    function, model = _mixed()
    change = make()
    return Case(function, [Change(change.do, change.undo, idle)], given=_batch, observe=lambda: model)


for _name, _make in _FLAGS.items():
    enter(f"{_name} switched", lambda make=_make: _of_a_flag(make, False))
for _name, _make in _IDLE_FLAGS.items():
    enter(f"{_name} switched", lambda make=_make: _of_a_flag(make, True))

# What Python may ask torch, and the flag that gives another answer.
_ASKED: dict[str, tuple[Callable[[], Any], Callable[[], Change]]] = {
    "default dtype": (lambda: torch.get_default_dtype() is torch.float32, _FLAGS["default dtype"]),
    "gradients": (torch.is_grad_enabled, _FLAGS["gradients"]),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), _FLAGS["autocast"]),
    "autocast's dtype": (
        lambda: torch.get_autocast_dtype("cpu") is torch.float16,
        lambda: Change(
            lambda: torch.set_autocast_dtype("cpu", torch.float16),
            lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
        ),
    ),
    "threads": (lambda: torch.get_num_threads() == 3, _IDLE_FLAGS["threads"]),
    "deterministic algorithms": (
        torch.are_deterministic_algorithms_enabled,
        _IDLE_FLAGS["deterministic algorithms"],
    ),
    "precision of products": (
        lambda: torch.get_float32_matmul_precision() == "highest",
        _IDLE_FLAGS["precision of products"],
    ),
    "oneDNN": (lambda: torch.backends.mkldnn.enabled, _IDLE_FLAGS["oneDNN"]),
    "anomalies": (torch.is_anomaly_enabled, _IDLE_FLAGS["anomalies"]),
    "the seed": (
        lambda: torch.initial_seed() == 0,
        lambda: Change(lambda: torch.manual_seed(7), lambda: torch.manual_seed(0)),
    ),
    "the default device": (lambda: torch.get_default_device().type == "cpu", _FLAGS["default device"]),
    "a number of batched kernels": (
        lambda: torch.backends.mha.get_fastpath_enabled(),
        lambda: _flag(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, False),
    ),
    "whether warnings are always given": (
        torch.is_warn_always_enabled,
        lambda: _flag(torch.is_warn_always_enabled, torch.set_warn_always, True),
    ),
}


def _of_a_question(asked: Callable[[], Any], make: Callable[[], Change]) -> Any:
    return lambda x: x * (2.0 if asked() else 3.0), make()


for _name, (_question, _make) in _ASKED.items():
    enter(f"{_name} asked for", lambda q=_question, make=_make: _of_a_question(q, make))

_AROUND: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast to bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast that is off": lambda: torch.autocast("cpu", enabled=False),
    "autocast without a cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "sdpa's kernels": lambda: nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH),
    "a device": lambda: torch.device("cpu"),
    "a profiler": lambda: torch.autograd.profiler.profile(),
    "deterministic guard": lambda: torch.random.fork_rng(),
    "saved tensors on the CPU": lambda: torch.autograd.graph.save_on_cpu(),
    "multithreading off": lambda: torch.autograd.set_multithreading_enabled(False),
}


def _of_a_mode(mode: Callable[[], Any], inside: bool) -> Case:
    model, box = nn.Linear(3, 3), Box(on=False)

    def entered() -> Any:
        return mode() if box.on else contextlib.nullcontext()

    def run(x: Tensor) -> Any:
        y = model(x)
        return torch.nn.functional.scaled_dot_product_attention(y, y, y), y + torch.rand(3)

    def function(x: Tensor) -> Any:
        with entered() if inside else contextlib.nullcontext():
            return run(x)

    around = (lambda number: contextlib.nullcontext()) if inside else (lambda number: entered())
    given = lambda number: Given(sample(number, 1, 2, 3))  # noqa: E731
    change = Change(attribute(box, "on", True).do, attribute(box, "on", True).undo, idle=True)
    return Case(function, [change], given=given, around=around, observe=lambda: model)


for _name, _mode in _AROUND.items():
    enter(f"{_name} around the call at times", lambda mode=_mode: _of_a_mode(mode, False))
    enter(f"{_name} inside of the call at times", lambda mode=_mode: _of_a_mode(mode, True))


@kind
def dtype_of_autocast_changed() -> Any:
    model = nn.Linear(3, 3)
    change = Change(
        lambda: torch.set_autocast_dtype("cpu", torch.float16), lambda: torch.set_autocast_dtype("cpu", torch.bfloat16)
    )

    def function(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.get_autocast_dtype("cpu")):
            return model(x)  # type: ignore[no-any-return]

    return Case(function, [change], given=_batch, observe=lambda: model)


@kind
def dtype_of_autocast_in_an_object() -> Any:
    model, box = nn.Linear(3, 3), Box(dtype=torch.bfloat16)

    def function(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=box.dtype):
            return model(x)  # type: ignore[no-any-return]

    return Case(function, [attribute(box, "dtype", torch.float16)], given=_batch, use=backward, observe=lambda: model)


@kind
def gradients_switched_off_and_left_so() -> Any:
    w = torch.ones(3, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        y = x * w
        torch.set_grad_enabled(False)
        return y

    change = Change(lambda: torch.set_grad_enabled(True))
    return Case(function, [change], observe=lambda: (w, torch.is_grad_enabled()))


@kind
def default_dtype_set_inside() -> Any:
    def function(x: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        return x + torch.ones(3)

    change = Change(lambda: torch.set_default_dtype(torch.float32), idle=True)
    return Case(function, [change], observe=torch.get_default_dtype)


@kind
def threads_set_inside() -> Any:
    def function(x: Tensor) -> Tensor:
        torch.set_num_threads(3)
        return x * 2

    return Case(function, [Change(lambda: torch.set_num_threads(1), idle=True)], observe=torch.get_num_threads)


@kind
def mode_whose_flag_is_state() -> Any:
    box, w = Box(on=True), torch.ones(3, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        with torch.set_grad_enabled(box.on):
            return x * w

    return Case(function, [attribute(box, "on", False)], use=backward, observe=lambda: w)


@kind
def decorated_with_no_grad() -> Any:
    box, w = Box(k=1.0), torch.ones(3, requires_grad=True)

    @torch.no_grad()
    def inner(x: Tensor) -> Tensor:
        return x * w * box.k

    return Case(lambda x: inner(x) + w, [attribute(box, "k", 5.0)], use=backward, observe=lambda: w)


class Noted(TorchFunctionMode):
    def __init__(self, seen: list[str], factor: float = 1.0) -> None:
        super().__init__()
        self.seen, self.factor = seen, factor

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        out = function(*args, **(kwargs or {}))
        if name in ("mul", "sin"):
            self.seen.append(name)
            return out * self.factor
        return out


class Dispatched(TorchDispatchMode):
    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(op))
        return op(*args, **(kwargs or {}))


def _of_a_function_mode(make: Callable[[list[str]], Any], inside: bool) -> Case:
    seen: list[str] = []
    box = Box(on=False)

    def entered(*_: Any) -> Any:
        return make(seen) if box.on else contextlib.nullcontext()

    def function(x: Tensor) -> Tensor:
        with entered() if inside else contextlib.nullcontext():
            return torch.sin(x * 2)

    around = (lambda number: contextlib.nullcontext()) if inside else entered
    return Case(function, [attribute(box, "on", True)], around=around, observe=lambda: seen)


for _name, _mode in {
    "mode of functions": lambda seen: Noted(seen),
    "mode of functions that changes results": lambda seen: Noted(seen, 3.0),
    "mode of dispatch": Dispatched,
}.items():
    enter(f"{_name} around the call", lambda mode=_mode: _of_a_function_mode(mode, False))
    enter(f"{_name} inside of the call", lambda mode=_mode: _of_a_function_mode(mode, True))


@kind
def mode_of_functions_with_state() -> Any:
    seen: list[str] = []
    mode = Noted(seen, 2.0)

    def function(x: Tensor) -> Tensor:
        return torch.sin(x)

    return Case(function, [attribute(mode, "factor", 5.0)], around=lambda n: mode, observe=lambda: seen)


@kind
def one_of_two_modes_of_functions() -> Any:
    box = Box(factor=2.0)
    modes = {2.0: Noted([], 2.0), 5.0: Noted([], 5.0)}
    return Case(lambda x: torch.sin(x), [attribute(box, "factor", 5.0)], around=lambda n: modes[box.factor])


@kind
def hooks_of_saved_tensors_around() -> Any:
    box, w, seen = Box(on=False), torch.ones(3, requires_grad=True), []  # type: ignore[var-annotated]

    def around(number: int) -> Any:
        if not box.on:
            return contextlib.nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(lambda one: (seen.append(1), one)[1], lambda one: one * 2)

    case = Case(lambda x: (w * x).sin(), [attribute(box, "on", True)], around=around, use=backward)
    case.observe = lambda: (w, seen)
    return case


@kind
def hooks_of_saved_tensors_inside() -> Any:
    box, w, seen = Box(k=1.0), torch.ones(3, requires_grad=True), []  # type: ignore[var-annotated]

    def function(x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda one: (seen.append(1), one)[1], lambda one: one * box.k):
            return (w * x).sin()

    return Case(function, [attribute(box, "k", 5.0)], use=backward, observe=lambda: (w, seen))


@kind
def random_state_as_a_value() -> Any:
    return Case(lambda x: (x + torch.rand(3), torch.get_rng_state()))


@kind
def random_state_put_back_inside() -> Any:
    def function(x: Tensor) -> Any:
        state = torch.get_rng_state()
        first = torch.rand(3)
        torch.set_rng_state(state)
        return first, torch.rand(3) + x

    return function


@kind
def random_state_forked_inside() -> Any:
    def function(x: Tensor) -> Any:
        with torch.random.fork_rng():
            first = torch.rand(3)
        return first, torch.rand(3) + x

    return function


@kind
def seed_set_inside() -> Any:
    box = Box(seed=3)

    def function(x: Tensor) -> Tensor:
        torch.manual_seed(box.seed)
        return x + torch.rand(3)

    return function, attribute(box, "seed", 5)


@kind
def seed_set_inside_and_nothing_drawn() -> Any:
    def function(x: Tensor) -> Tensor:
        torch.manual_seed(5)
        return x * 2

    return function, Change(lambda: torch.rand(3), lambda: torch.rand(3), idle=True)


@kind
def seed_drawn_inside() -> Any:
    def function(x: Tensor) -> Tensor:
        torch.manual_seed(int(torch.randint(0, 1000, ()).item()))
        return x + torch.rand(3)

    return function


@kind
def seed_set_outside() -> Any:
    return Case(lambda x: x + torch.rand(3), [Change(lambda: torch.manual_seed(9))])


@kind
def random_generator_made_inside() -> Any:
    box = Box(seed=3)

    def function(x: Tensor) -> Tensor:
        return x + torch.rand(3, generator=torch.Generator().manual_seed(box.seed))

    return function, attribute(box, "seed", 5)


@kind
def random_generator_asked_for_its_state() -> Any:
    chance = torch.Generator().manual_seed(3)
    return Case(lambda x: (x + torch.rand(3, generator=chance), chance.get_state()), observe=lambda: chance)


@kind
def random_permutation_that_python_reads() -> Any:
    return Case(lambda x: x[torch.randperm(3).tolist()])


@kind
def number_drawn_that_decides() -> Any:
    return Case(lambda x: x * 2 if torch.rand(()).item() < 0.5 else x - torch.rand(3))


@kind
def dropout_and_noise() -> Any:
    box = Box(p=0.5)
    return Case(
        lambda x: torch.nn.functional.dropout(x, box.p) + torch.randn(3) * torch.bernoulli(torch.full((3,), 0.5)),
        [attribute(box, "p", 0.1)],
    )


def _named() -> str:
    """Ops live in one place for the whole process: each program has its own."""
    return f"torchreel_kinds::op_{next(_numbers)}"


@kind
def op_of_ones_own_that_keeps_a_tensor() -> Any:
    kept: list[Tensor] = []

    @torch.library.custom_op(_named(), mutates_args=())
    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x * 2

    return Case(lambda x: keep(x + 1) - 1, observe=lambda: kept)


@kind
def op_of_ones_own_that_reads_state() -> Any:
    box = Box(k=1.0)

    @torch.library.custom_op(_named(), mutates_args=())
    def scaled(x: Tensor) -> Tensor:
        return x * box.k

    return lambda x: scaled(x + 1), attribute(box, "k", 5.0)


@kind
def op_of_ones_own_that_counts() -> Any:
    box = Box(n=0)

    @torch.library.custom_op(_named(), mutates_args=())
    def counted(x: Tensor) -> Tensor:
        box.n += 1
        return x * box.n

    return Case(lambda x: counted(x), observe=lambda: box)


@kind
def op_of_ones_own_that_writes() -> Any:
    state = torch.zeros(3)

    @torch.library.custom_op(_named(), mutates_args=("state",))
    def added(state: Tensor, x: Tensor) -> None:
        state.add_(x)

    def function(x: Tensor) -> Tensor:
        added(state, x)
        return state * 2

    return Case(function, observe=lambda: state)


@kind
def op_of_ones_own_with_a_backward_that_reads_state() -> Any:
    box, w = Box(k=1.0), torch.ones(3, requires_grad=True)

    @torch.library.custom_op(_named(), mutates_args=())
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    doubled.register_autograd(lambda ctx, gradient: gradient * box.k)
    return Case(lambda x: doubled(x * w), [attribute(box, "k", 5.0)], use=backward, observe=lambda: w)


@kind
def op_that_is_unsafe_for_graphs() -> Any:
    kept: list[Tensor] = []

    @torch.library.custom_op(_named(), mutates_args=(), tags=[torch.Tag.cudagraph_unsafe])
    def unsafe(x: Tensor) -> Tensor:
        kept.append(x.clone())
        return x * len(kept)

    return Case(lambda x: unsafe(x + 1) * 2, observe=lambda: kept)


@kind
def op_of_a_library_registered_later() -> Any:
    name = _named()
    box = Box(k=2.0)

    @torch.library.custom_op(name, mutates_args=())
    def scaled(x: Tensor) -> Tensor:
        return x * 2

    def other(x: Tensor) -> Tensor:
        return x * box.k

    scaled.register_kernel("cpu")(other)
    return lambda x: scaled(x), attribute(box, "k", 5.0)


@kind
def detached_printing_of_a_profiler() -> Any:
    box = Box(name="a")

    def function(x: Tensor) -> Tensor:
        with torch.profiler.record_function(box.name):
            return x * len(box.name)

    return function, attribute(box, "name", "bcd")
