"""Functions: how they are made, what they are made of, and how others replace them."""

from __future__ import annotations

import builtins
import functools
import math
import sys
import types
from typing import Any

import torch
from torch.nn import functional

from tests.graphs.guards.kinds.registry import Box, attribute, item, kind, patched
from tests.graphs.guards.lockstep import Case, Change, Given, module_of, sample

Tensor = torch.Tensor


@kind
def code_of_a_function_replaced() -> Any:
    def helper(x: Tensor) -> Tensor:
        return x * 2

    def other(x: Tensor) -> Tensor:
        return x * 3

    return lambda x: helper(x), attribute(helper, "__code__", other.__code__)


@kind
def code_of_the_function_itself_replaced() -> Any:
    def function(x: Tensor) -> Tensor:
        return x * 2

    def other(x: Tensor) -> Tensor:
        return x * 3

    return function, attribute(function, "__code__", other.__code__)


@kind
def defaults_of_a_function_replaced() -> Any:
    def helper(x: Tensor, by: float = 2.0, *, more: float = 1.0) -> Tensor:
        return x * by + more

    changes = attribute(helper, "__defaults__", (5.0,)), attribute(helper, "__kwdefaults__", {"more": 3.0})
    return lambda x: helper(x), *changes


@kind
def keyword_default_changed_in_place() -> Any:
    def function(x: Tensor, *, more: float = 1.0) -> Tensor:
        return x + more

    return function, item(function.__kwdefaults__, "more", 3.0)


@kind
def default_that_is_an_object() -> Any:
    box = Box(k=1.0)

    def function(x: Tensor, box: Any = box) -> Tensor:
        return x * box.k

    return function, attribute(box, "k", 5.0)


@kind
def default_that_is_left_out_or_given() -> Any:
    def given(number: int) -> Given:
        return Given(sample(number), **({} if number % 2 else {"by": 2.0}))

    def function(x: Tensor, by: Any = None) -> Tensor:
        return x * (3.0 if by is None else by)

    return Case(function, given=given)


@kind
def function_of_a_module_patched() -> Any:
    module = module_of("patched", "def helper(x):\n    return x * 2\n\ndef function(x):\n    return helper(x)\n")
    return module.function, attribute(module, "helper", lambda x: x * 5)


@kind
def method_patched_in_the_class() -> Any:
    class Owner:
        def step(self, x: Tensor) -> Tensor:
            return x * 2

    owner = Owner()
    return lambda x: owner.step(x), attribute(Owner, "step", lambda self, x: x * 5)


@kind
def method_patched_in_the_instance() -> Any:
    class Owner:
        def step(self, x: Tensor) -> Tensor:
            return x * 2

    owner = Owner()
    return lambda x: owner.step(x), Change(
        lambda: setattr(owner, "step", lambda x: x * 5), lambda: delattr(owner, "step")
    )


@kind
def function_of_torch_patched() -> Any:
    return lambda x: torch.sin(x) + 1, patched(torch, "sin", torch.cos)


@kind
def functional_of_torch_patched() -> Any:
    layer = torch.nn.ReLU()
    return lambda x: layer(x) + 1, patched(functional, "relu", lambda x, inplace=False: x * 5)


@kind
def method_of_tensors_patched() -> Any:
    real = torch.Tensor.sin
    change = Change(
        lambda: setattr(torch.Tensor, "sin", lambda self: real(self) * 5), lambda: setattr(torch.Tensor, "sin", real)
    )
    return lambda x: x.sin() + 1, change


@kind
def forward_of_a_class_of_torch_patched() -> Any:
    layer = torch.nn.Tanh()
    return lambda x: layer(x) + 1, patched(torch.nn.Tanh, "forward", lambda self, x: x * 5)


@kind
def function_of_the_standard_library_patched() -> Any:
    return lambda x: x * math.sqrt(4.0), patched(math, "sqrt", lambda number: 5.0)


@kind
def builtin_function_patched() -> Any:
    real = builtins.abs
    return lambda x: x * abs(-1.5), patched(builtins, "abs", lambda value: 5.0 if value == -1.5 else real(value))


@kind
def name_added_to_the_builtins() -> Any:
    def function(x: Tensor) -> Tensor:
        try:
            return x * kinds_scale  # type: ignore[name-defined]
        except NameError:
            return x - 1

    return function, attribute(builtins, "kinds_scale", 5.0)


@kind
def global_deleted() -> Any:
    source = (
        "K = 1.0\n\ndef function(x):\n    try:\n        return x * K\n    except NameError:\n        return x - 1\n"
    )
    module = module_of("deleted", source)
    return module.function, Change(lambda: delattr(module, "K"), lambda: setattr(module, "K", 1.0))


@kind
def global_replaced_by_one_of_another_type() -> Any:
    module = module_of("typed", "K = 1\n\ndef function(x):\n    return x * K, type(K).__name__\n")
    return module.function, attribute(module, "K", True), attribute(module, "K", 1.0)


@kind
def globals_as_a_dict() -> Any:
    module = module_of("as_dict", "K = 1.0\n\ndef function(x):\n    return x * globals()['K']\n")
    return module.function, attribute(module, "K", 5.0)


@kind
def locals_as_a_dict() -> Any:
    box = Box(k=1.0)

    def function(x: Tensor) -> Tensor:
        k = box.k
        return x * locals()["k"]

    return function, attribute(box, "k", 5.0)


@kind
def evaluated_text() -> Any:
    module = module_of("evaluated", "K = 1.0\nTEXT = 'K + 1'\n\ndef function(x):\n    return x * eval(TEXT)\n")
    return module.function, attribute(module, "K", 5.0), attribute(module, "TEXT", "K + 2")


@kind
def compiled_text() -> Any:
    space = {"k": 1.0}
    code = compile("k * 2", "<kinds>", "eval")
    return lambda x: x * eval(code, space), item(space, "k", 5.0)


@kind
def executed_text_that_defines_a_function() -> Any:
    box = Box(text="def made(x):\n    return x * 2\n")

    def function(x: Tensor) -> Tensor:
        space: dict[str, Any] = {}
        exec(box.text, space)
        return space["made"](x)  # type: ignore[no-any-return]

    return function, attribute(box, "text", "def made(x):\n    return x * 5\n")


@kind
def function_made_at_each_call() -> Any:
    box = Box(k=1.0)

    def function(x: Tensor) -> Tensor:
        def inner(y: Tensor, by: float = box.k) -> Tensor:
            return y * by + box.k

        return inner(x)

    return function, attribute(box, "k", 5.0)


@kind
def class_made_at_each_call() -> Any:
    box = Box(k=1.0)

    def function(x: Tensor) -> Tensor:
        class Made:
            k = box.k

            def times(self, y: Tensor) -> Tensor:
                return y * self.k

        return Made().times(x)

    return function, attribute(box, "k", 5.0)


@kind
def module_made_at_each_call() -> Any:
    def function(x: Tensor) -> Tensor:
        layer = torch.nn.Linear(3, 2)
        return layer(x).detach()

    return function


@kind
def module_made_at_each_call_and_kept() -> Any:
    kept: list[Any] = []

    def function(x: Tensor) -> Tensor:
        kept.append(torch.nn.Linear(3, 2))
        return kept[-1](x)

    return Case(function, observe=lambda: kept)


@kind
def decorator_with_state() -> Any:
    box = Box(k=1.0)

    def scaled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) * box.k

        return wrapper

    @scaled
    @scaled
    def function(x: Tensor) -> Tensor:
        return x + 1

    return function, attribute(box, "k", 5.0)


@kind
def decorator_that_counts() -> Any:
    calls = {"n": 0}

    def counted(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            calls["n"] += 1
            return function(*args, **kwargs)

        return wrapper

    return Case(counted(lambda x: x * 2), observe=lambda: calls)


@kind
def cache_of_tensors() -> Any:
    cache: dict[Any, Tensor] = {}

    def mask(size: int) -> Tensor:
        if size not in cache:
            cache[size] = torch.ones(size)
        return cache[size]

    change = Change(lambda: cache.clear())
    return Case(lambda x: x * mask(x.shape[0]), [Change(change.do, idle=True)], observe=lambda: cache)


@kind
def cache_of_results() -> Any:
    cache: dict[str, Tensor] = {}

    def function(x: Tensor) -> Tensor:
        if "y" not in cache:
            cache["y"] = x * 2
        return cache["y"] + x

    return Case(function, [Change(cache.clear)], observe=lambda: cache)


@kind
def lazily_made_table() -> Any:
    box = Box(table=None, size=3)

    def function(x: Tensor) -> Tensor:
        if box.table is None or len(box.table) != box.size:
            box.table = torch.arange(float(box.size))
        return x.sum() + box.table

    return Case(function, [attribute(box, "size", 4)], observe=lambda: box)


@kind
def lambda_in_a_loop() -> Any:
    steps = [lambda x, k=k: x * k for k in (1.0, 2.0)]

    def function(x: Tensor) -> Tensor:
        for step in steps:
            x = step(x)
        return x

    return function, attribute(steps[1], "__defaults__", (5.0,))


@kind
def recursion_with_a_depth() -> Any:
    box = Box(depth=3)

    def deep(x: Tensor, depth: int) -> Tensor:
        return x if depth == 0 else deep(x.sin(), depth - 1)

    return lambda x: deep(x, box.depth), attribute(box, "depth", 5)


@kind
def recursion_that_goes_too_deep() -> Any:
    box = Box(depth=3)

    def deep(depth: int) -> int:
        return 0 if depth == 0 else 1 + deep(depth - 1)

    return lambda x: x * deep(box.depth), attribute(box, "depth", 10**6)


@kind
def frame_that_is_looked_into() -> Any:
    def caller(x: Tensor, scale: float) -> Tensor:
        return helper(x)

    def helper(x: Tensor) -> Tensor:
        return x * sys._getframe(1).f_locals["scale"]

    box = Box(k=1.0)
    return lambda x: caller(x, box.k), attribute(box, "k", 5.0)


@kind
def frame_of_a_caller_far_away() -> Any:
    box = Box(k=1.0)

    def helper(x: Tensor) -> Tensor:
        frame: Any = sys._getframe()
        while "kinds_scale" not in frame.f_locals:
            frame = frame.f_back
        return x * frame.f_locals["kinds_scale"]

    def function(x: Tensor) -> Tensor:
        kinds_scale = box.k  # noqa: F841
        return next(map(helper, [x]))

    return function, attribute(box, "k", 5.0)


@kind
def bound_method_of_an_object_as_the_function() -> Any:
    class Model:
        def __init__(self) -> None:
            self.k, self.w = 1.0, torch.ones(3)

        def run(self, x: Tensor) -> Tensor:
            return x * self.k + self.w

    model = Model()
    return model.run, attribute(model, "k", 5.0), attribute(model, "w", torch.zeros(3))


@kind
def class_method_as_the_function() -> Any:
    class Model:
        k = 1.0

        @classmethod
        def run(cls, x: Tensor) -> Tensor:
            return x * cls.k

    return Model.run, attribute(Model, "k", 5.0)


@kind
def function_with_a_new_closure() -> Any:
    def maker(k: float) -> Any:
        return lambda x: x * k

    holder = {"f": maker(1.0)}
    return lambda x: holder["f"](x), item(holder, "f", maker(5.0))


@kind
def function_copied_with_other_globals() -> Any:
    source = "def inner(x):\n    return x * K\n"
    module = module_of("copied", source, K=1.0)
    other = {"K": 5.0}
    made = types.FunctionType(module.inner.__code__, other)
    return lambda x: made(x), item(other, "K", 7.0)


@kind
def coroutine_run_by_hand() -> Any:
    box = Box(k=1.0)

    async def scaled(x: Tensor) -> Tensor:
        return x * box.k

    def function(x: Tensor) -> Tensor:
        try:
            scaled(x).send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        raise AssertionError

    return function, attribute(box, "k", 5.0)


@kind
def event_loop_run_inside() -> Any:
    import asyncio

    box = Box(k=1.0)

    async def scaled(x: Tensor) -> Tensor:
        await asyncio.sleep(0)
        return x * box.k

    return lambda x: asyncio.run(scaled(x)), attribute(box, "k", 5.0)


@kind
def generator_expression_with_late_binding() -> Any:
    parts = [1.0, 2.0]

    def function(x: Tensor) -> Tensor:
        made = (x * k for k in parts)
        return sum(made)  # type: ignore[return-value]

    return function, item(parts, 1, 5.0)


@kind
def walrus_and_conditional() -> Any:
    box = Box(k=1.0)

    def function(x: Tensor) -> Tensor:
        return x * k if (k := box.k) < 3 else x - k

    return function, attribute(box, "k", 5.0)


@kind
def while_loop_over_state() -> Any:
    box = Box(n=3)

    def function(x: Tensor) -> Tensor:
        n = box.n
        while n:
            x, n = x.sin(), n - 1
        else:
            x = x + 1
        return x

    return function, attribute(box, "n", 5)


@kind
def assert_on_state() -> Any:
    box = Box(ok=True)

    def function(x: Tensor) -> Tensor:
        assert box.ok, "not ok"
        return x * 2

    return function, attribute(box, "ok", False)


@kind
def error_caught_around_a_loop() -> Any:
    table = {"a": 1.0}

    def function(x: Tensor) -> Tensor:
        for name in ("a", "b", "c"):
            try:
                x = x * table[name]
            except KeyError:
                continue
            else:
                x = x + 1
        return x

    return function, item(table, "b", 5.0)


@kind
def group_of_errors() -> Any:
    box = Box(kind=ValueError)

    def function(x: Tensor) -> Tensor:
        try:
            raise ExceptionGroup("two", [box.kind("a"), KeyError("b")])
        except* ValueError:
            x = x * 2
        except* KeyError:
            x = x * 3
        except* TypeError:
            x = x * 5
        return x

    return function, attribute(box, "kind", TypeError)


@kind
def suppressed_error() -> Any:
    import contextlib

    table: dict[str, float] = {}

    def function(x: Tensor) -> Tensor:
        with contextlib.suppress(KeyError):
            x = x * table["k"]
        return x + 1

    return function, item(table, "k", 5.0)


@kind
def type_of_state_decides() -> Any:
    box = Box(value=1.0)

    def function(x: Tensor) -> Tensor:
        if isinstance(box.value, list):
            return x * box.value[0]
        return x + box.value

    return function, attribute(box, "value", [5.0]), attribute(box, "value", torch.zeros(3))


@kind
def identity_of_objects_decides() -> Any:
    one, other = Box(), Box()
    holder = Box(now=one)
    return lambda x: x * (2.0 if holder.now is one else 3.0), attribute(holder, "now", other)


@kind
def address_of_an_object_decides() -> Any:
    one, other = Box(), Box()
    holder = Box(now=one)
    return lambda x: x * (2.0 if id(holder.now) == id(one) else 3.0), attribute(holder, "now", other)


@kind
def graphed_within() -> Any:
    import torchreel

    box = Box(k=1.0)
    inner = torchreel.graphed(lambda x: x * box.k)
    return lambda x: inner(x) + 1, attribute(box, "k", 5.0)


@kind
def scripted_function_within() -> Any:
    box = Box(k=1.0)
    scripted = torch.jit.trace(lambda x: x * 2, torch.ones(3))
    return lambda x: scripted(x) * box.k, attribute(box, "k", 5.0)
