"""What belongs to the process: the interpreter, the system, other libraries; asked for, and changed between calls."""

from __future__ import annotations

import builtins
import ctypes
import gc
import io
import os
import queue
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import torch

from tests.graphs.guards.kinds.registry import Box, attribute, enter, kind
from tests.graphs.guards.lockstep import Case, Change, Given, Notice, module_of, sample

Tensor = torch.Tensor


def _moved() -> Change:
    before, other = os.getcwd(), tempfile.gettempdir()  # noqa: PTH109
    return Change(lambda: os.chdir(other), lambda: os.chdir(before))


def _flag(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Change:
    before = get()
    return Change(lambda: put(value), lambda: put(before))


def _renamed() -> Change:
    thread = threading.current_thread()
    return attribute(thread, "name", "another name of it")


_ASKED: dict[str, tuple[Callable[[], Any], Callable[[], Change]]] = {
    "arguments of the program": (
        lambda: len(sys.argv),
        lambda: Change(lambda: sys.argv.append("more"), sys.argv.pop),
    ),
    "path of modules": (lambda: len(sys.path), lambda: Change(lambda: sys.path.append("more"), sys.path.pop)),
    "recursion limit": (
        sys.getrecursionlimit,
        lambda: _flag(sys.getrecursionlimit, sys.setrecursionlimit, sys.getrecursionlimit() + 7),
    ),
    "switch interval": (
        sys.getswitchinterval,
        lambda: _flag(sys.getswitchinterval, sys.setswitchinterval, sys.getswitchinterval() * 2),
    ),
    "module that is loaded": (
        lambda: "kinds_more" in sys.modules,
        lambda: Change(
            lambda: sys.modules.__setitem__("kinds_more", builtins), lambda: sys.modules.__delitem__("kinds_more")
        ),
    ),
    "collector": (gc.isenabled, lambda: Change(gc.disable, gc.enable)),
    "working directory": (lambda: len(os.getcwd()), _moved),  # noqa: PTH109
    "name of the thread": (lambda: len(threading.current_thread().name), _renamed),
    "print options of numpy": (
        lambda: len(str(numpy.array([1.23456789]))),
        lambda: Change(lambda: numpy.set_printoptions(precision=2), lambda: numpy.set_printoptions(precision=8)),
    ),
    "error state of numpy": (
        lambda: numpy.geterr()["divide"] == "warn",
        lambda: Change(lambda: numpy.seterr(divide="ignore"), lambda: numpy.seterr(divide="warn")),
    ),
    "filters of warnings": (
        lambda: len(warnings.filters),
        lambda: Change(lambda: warnings.simplefilter("default", Notice), lambda: warnings.filters.pop(0)),
    ),
    "zone of time": (
        lambda: time.localtime(0).tm_hour,
        lambda: Change(lambda: _zone("XXX+5"), lambda: _zone("UTC")),
    ),
    "threads that are alive": (threading.active_count, lambda: _sleeper()),
}  # fmt: skip


def _zone(name: str) -> None:
    os.environ["TZ"] = name
    time.tzset()


def _sleeper() -> Change:
    started: list[tuple[threading.Thread, threading.Event]] = []

    def start() -> None:
        event = threading.Event()
        thread = threading.Thread(target=event.wait)
        thread.start()
        started.append((thread, event))

    def stop() -> None:
        thread, event = started.pop()
        event.set()
        thread.join()

    return Change(start, stop)


def _asked(question: Callable[[], Any], change: Callable[[], Change]) -> Any:
    return lambda x: x * float(question()) + 1, change()


for _name, (_question, _change) in _ASKED.items():
    enter(f"{_name} asked for", lambda q=_question, c=_change: _asked(q, c), brief=True)


class _Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_double), ("b", ctypes.c_int))


_HELD: dict[str, tuple[Callable[[], Any], Callable[[Any], float], Callable[[Any], Change]]] = {
    "number of ctypes": (lambda: ctypes.c_double(1.0), lambda one: one.value, lambda one: attribute(one, "value", 5.0)),
    "array of ctypes": (
        lambda: (ctypes.c_double * 2)(1.0, 2.0),
        lambda one: one[0],
        lambda one: Change(lambda: one.__setitem__(0, 5.0), lambda: one.__setitem__(0, 1.0)),
    ),
    "structure of ctypes": (lambda: _Pair(1.0, 2), lambda one: one.a, lambda one: attribute(one, "a", 5.0)),
    "event of a thread": (threading.Event, lambda one: 1.0 + one.is_set(), lambda one: Change(one.set, one.clear)),
    "queue": (queue.Queue, lambda one: 1.0 + one.qsize(), lambda one: Change(lambda: one.put(1), one.get)),
    "text stream": (
        lambda: io.StringIO("a"),
        lambda one: len(one.getvalue()),
        lambda one: Change(lambda: one.write("bcd"), lambda: one.seek(0)),
    ),
    "number of numpy without dimensions": (
        lambda: numpy.array(1.0),
        lambda one: float(one),
        lambda one: Change(lambda: one.fill(5.0), lambda: one.fill(1.0)),
    ),
    "record of numpy": (
        lambda: numpy.zeros(1, dtype=[("a", "f8")]),
        lambda one: float(one["a"][0]) + 1,
        lambda one: Change(lambda: one["a"].fill(5.0), lambda: one["a"].fill(0.0)),
    ),
    "shape of numpy": (
        lambda: numpy.arange(6.0),
        lambda one: float(one.ndim + one.shape[0]),
        lambda one: attribute(one, "shape", (2, 3)),
    ),
    "array of objects of numpy": (
        lambda: numpy.array([Box(k=1.0)], dtype=object),
        lambda one: one[0].k,
        lambda one: attribute(one[0], "k", 5.0),
    ),
    "array of numpy over a bytearray": (
        lambda: numpy.frombuffer(bytearray(8), dtype=numpy.uint8),
        lambda one: float(one.sum()) + 1,
        lambda one: Change(lambda: one.__setitem__(0, 5), lambda: one.__setitem__(0, 0)),
    ),
    "tensor over numpy": (
        lambda: numpy.ones(3),
        lambda one: float(torch.from_numpy(one).sum()),
        lambda one: Change(lambda: one.fill(5.0), lambda: one.fill(1.0)),
    ),
}  # fmt: skip


def _held(make: Callable[[], Any], read: Callable[[Any], Any], change: Callable[[Any], Change]) -> Any:
    one = make()
    return lambda x: x * read(one), change(one)


for _name, (_make, _read, _changed) in _HELD.items():
    enter(f"{_name} held", lambda m=_make, r=_read, c=_changed: _held(m, r, c), brief=True)


@kind
def tensor_that_numpy_writes() -> Any:
    state = torch.zeros(3)

    def function(x: Tensor) -> Tensor:
        state.numpy()[0] += 1
        return x * state

    return Case(function, observe=lambda: state)


@kind
def tensor_that_numpy_writes_by_a_view_of_old() -> Any:
    state = torch.zeros(3)
    view = state.numpy()

    def function(x: Tensor) -> Tensor:
        y = x + state
        view[:] = view + 1
        return y + state

    return Case(function, observe=lambda: state)


@kind
def array_that_torch_writes() -> Any:
    numbers = numpy.zeros(3, dtype=numpy.float32)

    def function(x: Tensor) -> Tensor:
        torch.from_numpy(numbers).add_(x)
        return x * float(numbers.sum())

    return Case(function, observe=lambda: numbers)


@kind
def array_that_torch_reads() -> Any:
    numbers = numpy.zeros(3, dtype=numpy.float32)
    change = Change(lambda: numbers.fill(5.0), lambda: numbers.fill(0.0))
    return Case(lambda x: x + torch.from_numpy(numbers), [change], observe=lambda: numbers)


@kind
def array_given_back_with_the_memory_of_a_result() -> Any:
    def function(x: Tensor) -> Any:
        y = x * 2
        return y, y.numpy()

    return Case(function, use=lambda out: out[0].add_(1))


@kind
def array_given_back_alone() -> Any:
    return Case(lambda x: (x * 2).numpy())


@kind
def list_given_back() -> Any:
    return Case(lambda x: (x * 2).tolist())


@kind
def numbers_given_back() -> Any:
    return Case(lambda x: (x.sum().item(), float(x[0]), bool(x[0] > 0), int(x.argmax()), str(x.shape), x.dtype))


@kind
def sizes_given_back() -> Any:
    return Case(lambda x: (x.shape, x.size(), x.stride(), x.numel(), x.device, x.layout, type(x)))


@kind
def error_given_back() -> Any:
    def function(x: Tensor) -> Any:
        try:
            return x.view(7)
        except RuntimeError as error:
            return x * 2, type(error).__name__

    return function


@kind
def builtins_of_a_module_replaced() -> Any:
    module = module_of("builtins", "def function(x):\n    return x * len('ab')\n")
    inner = {"len": lambda text: 5, "__import__": __import__}
    return module_of("outer", "def function(x):\n    return inner(x)\n", inner=module.function).function, Change(
        lambda: _rebuilt(module, inner), lambda: _rebuilt(module, builtins)
    )


def _rebuilt(module: Any, others: Any) -> None:
    """A function takes its builtins when it is made."""
    module.__builtins__ = others
    exec("def function(x):\n    return x * len('ab')\n", module.__dict__)
    sys.modules["kinds_outer"].inner = module.function  # type: ignore[attr-defined]


@kind
def module_loaded_anew() -> Any:
    source = "K = {}\n\ndef helper(x):\n    return x * K\n\ndef function(x):\n    return helper(x) + 1\n"
    module = module_of("loaded", source.format(1.0))
    load = lambda k: lambda: exec(source.format(k), module.__dict__)  # noqa: E731
    return Case(lambda x: module.function(x), [Change(load(5.0), load(1.0))])


@kind
def trace_function_of_the_program() -> Any:
    seen: list[str] = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name == "scaled":
            seen.append(event)
        return None

    def scaled(x: Tensor) -> Tensor:
        return x * 2

    before = sys.gettrace()
    change = Change(lambda: sys.settrace(trace), lambda: sys.settrace(before))
    return Case(scaled, [change], observe=lambda: (seen, sys.gettrace() is trace))


@kind
def fresh_lambda_as_an_argument() -> Any:
    def given(number: int) -> Given:
        k = float(number // 3)
        return Given(sample(number), lambda x: x * k)

    return Case(lambda x, step: step(x) + 1, given=given)
