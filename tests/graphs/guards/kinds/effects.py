"""What Python does that outlives the call: each must happen at every call."""

from __future__ import annotations

import array
import atexit
import bisect
import collections
import contextlib
import contextvars
import functools
import gc
import heapq
import io
import itertools
import logging
import operator
import os
import queue
import random
import struct
import sys
import tempfile
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

from tests.graphs.guards.kinds.registry import Box, attribute, enter, kind
from tests.graphs.guards.lockstep import Case, Change, Given, Notice, module_of, sample

Tensor = torch.Tensor


class State:
    """What the effects are on."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.table: dict[str, Any] = {"k": 1.0}
        self.box = Box(k=1.0)
        self.bag: set[float] = set()
        self.queue: collections.deque[Any] = collections.deque([1.0, 2.0, 3.0], maxlen=5)
        self.numbers = numpy.zeros(3)
        self.array = array.array("d", [1.0])
        self.buffer = bytearray(8)
        self.count: collections.Counter[str] = collections.Counter()
        self.lists: Any = collections.defaultdict(list)
        self.heap = [3.0, 4.0]
        self.tensors: list[Tensor] = []
        self.last: Any = None
        self.place = 0


def _times(state: State, number: float = 2.0) -> None:
    state.place += 1


Effect = Callable[[State, Tensor], Any]


def _set_item(s: State, x: Tensor) -> None:
    s.table["last"] = x


def _add_to_item(s: State, x: Tensor) -> None:
    s.table["k"] += 1


def _set_slice(s: State, x: Tensor) -> None:
    s.log[len(s.log) :] = [1.0, 2.0]


def _delete_item(s: State, x: Tensor) -> None:
    s.log.append(1)
    s.table[str(len(s.table))] = 1
    del s.log[0]


def _set_attribute(s: State, x: Tensor) -> None:
    s.last = x


def _set_attribute_of_a_result(s: State, x: Tensor) -> None:
    s.box.last = x * 3


def _or_of_a_set(s: State, x: Tensor) -> None:
    s.bag |= {float(len(s.bag))}


def _or_of_a_dict(s: State, x: Tensor) -> None:
    s.table |= {str(len(s.table)): 1}


def _delete_attribute(s: State, x: Tensor) -> None:
    if hasattr(s.box, "flag"):
        del s.box.flag
    else:
        s.box.flag = True


def _iconcat(s: State, x: Tensor) -> None:
    functools.reduce(operator.iconcat, [[1], [2]], s.log)


def _sorted_with_an_effect(s: State, x: Tensor) -> None:
    sorted([2, 1], key=s.log.append)  # type: ignore[arg-type]


def _swap(s: State, x: Tensor) -> None:
    s.heap[0], s.heap[1] = s.heap[1], s.heap[0]


def _star_target(s: State, x: Tensor) -> None:
    s.box.first, *s.box.rest = [len(s.log), 2.0]
    s.log.append(0)


def _loop_target(s: State, x: Tensor) -> None:
    for s.box.k in range(s.place, s.place + 3):  # noqa: B020
        pass
    s.place += 1


def _with_target(s: State, x: Tensor) -> None:
    with contextlib.nullcontext(x * 2) as s.last:
        pass


def _views(s: State, x: Tensor) -> None:
    vars(s.box)["k"] = x.sum()


def _numpy_slice(s: State, x: Tensor) -> None:
    s.numbers[1:] += 1


def _of_a_class(s: State, x: Tensor) -> None:
    type(s).total = getattr(type(s), "total", 0) + 1  # type: ignore[attr-defined]
    s.log.append(type(s).total % 3)  # type: ignore[attr-defined]


EFFECTS: dict[str, Effect] = {
    "list.append of a tensor": lambda s, x: s.log.append(x),
    "list.append of a result": lambda s, x: s.log.append(x * 2),
    "list.append of a number": lambda s, x: s.log.append(1.0),
    "list.extend": lambda s, x: s.log.extend([1.0, x]),
    "list.insert": lambda s, x: s.log.insert(0, len(s.log)),
    "list.pop": lambda s, x: (s.log.append(1), s.heap.append(1.0), s.heap.pop(0)),
    "list.clear": lambda s, x: s.log.clear() if len(s.log) > 2 else s.log.append(x),
    "list.remove": lambda s, x: (s.log.append(2), s.log.append(3), s.log.remove(2)),
    "list.sort": lambda s, x: (s.heap.append(1.0), s.heap.sort()),
    "list.reverse": lambda s, x: s.heap.reverse(),
    "list.__iadd__": lambda s, x: s.log.__iadd__([1]),
    "list.__setitem__": lambda s, x: list.__setitem__(s.heap, 0, s.heap[0] + 1),
    "slice of a list set": _set_slice,
    "item deleted": _delete_item,
    "items swapped": _swap,
    "item of a dict set": _set_item,
    "item of a dict counted": _add_to_item,
    "dict.update": lambda s, x: s.table.update(last=x * 2),
    "dict.update by a pair": lambda s, x: s.table.update([("n", len(s.log))]),
    "dict.setdefault": lambda s, x: s.table.setdefault(str(len(s.table)), x),
    "dict.pop": lambda s, x: (s.table.pop("k", None), s.table.__setitem__("k", x)),
    "dict.popitem": lambda s, x: (s.table.update(a=x), s.table.popitem(), s.log.append(0)),
    "dict.clear": lambda s, x: s.table.clear() if len(s.table) > 3 else _set_item(s, x),
    "dict |=": _or_of_a_dict,
    "dict.__setitem__ of the type": lambda s, x: dict.__setitem__(s.table, str(len(s.table)), 1),
    "set.add": lambda s, x: s.bag.add(float(len(s.bag))),
    "set |=": _or_of_a_set,
    "deque.append": lambda s, x: s.queue.append(len(s.log)),
    "deque.rotate": lambda s, x: s.queue.rotate(1),
    "Counter.update": lambda s, x: s.count.update("ab"),
    "Counter +=": lambda s, x: s.count.__setitem__("a", s.count["a"] + 1),
    "defaultdict.append": lambda s, x: s.lists["a"].append(x),
    "attribute set": _set_attribute,
    "attribute set to a result": _set_attribute_of_a_result,
    "attribute deleted": _delete_attribute,
    "attribute counted": lambda s, x: _times(s),
    "attribute of a class counted": _of_a_class,
    "setattr": lambda s, x: setattr(s.box, "last", x),
    "object.__setattr__": lambda s, x: object.__setattr__(s.box, "last", x),
    "vars": _views,
    "__dict__.update": lambda s, x: s.box.__dict__.update(last=x),
    "star target": _star_target,
    "loop target": _loop_target,
    "with target": _with_target,
    "operator.setitem": lambda s, x: operator.setitem(s.table, "last", x),
    "operator.iadd": lambda s, x: operator.iadd(s.log, [1]),
    "operator.delitem": lambda s, x: (s.log.extend([1, 2]), operator.delitem(s.log, 0)),
    "reduce of iconcat": _iconcat,
    "methodcaller": lambda s, x: operator.methodcaller("append", 1)(s.log),
    "partial of append": lambda s, x: functools.partial(s.log.append, 1)(),
    "bound append": lambda s, x: (lambda put: put(x))(s.log.append),
    "sorted by append": _sorted_with_an_effect,
    "map of append": lambda s, x: list(map(s.log.append, [1, 2])),
    "max by append": lambda s, x: max([1], key=s.log.append),  # type: ignore[arg-type]
    "filter of append": lambda s, x: list(filter(s.log.append, [1, 2])),
    "map of setattr": lambda s, x: list(map(setattr, [s.box], ["last"], [x])),
    "any of a generator with an effect": lambda s, x: any(s.log.append(k) for k in range(2)),
    "comprehension with an effect": lambda s, x: [s.log.append(k) for k in range(2)],
    "star call with an effect": lambda s, x: print(*map(s.log.append, [1]), end=""),
    "heapq.heappush": lambda s, x: heapq.heappush(s.heap, float(len(s.heap))),
    "heapq.heappop": lambda s, x: (heapq.heappush(s.heap, 9.0), heapq.heapreplace(s.heap, 7.0)),
    "bisect.insort": lambda s, x: bisect.insort(s.heap, 2.5),
    "random.shuffle": lambda s, x: random.shuffle(s.heap),
    "random.random": lambda s, x: s.log.append(0) if random.random() > 2 else None,
    "numpy.random": lambda s, x: numpy.random.rand(),
    "numpy item": lambda s, x: s.numbers.__setitem__(0, s.numbers[0] + 1),
    "numpy slice": _numpy_slice,
    "numpy out": lambda s, x: numpy.add(s.numbers, 1, out=s.numbers),
    "numpy fill": lambda s, x: s.numbers.fill(s.numbers[0] + 2),
    "numpy copyto": lambda s, x: numpy.copyto(s.numbers, s.numbers + 1),
    "array.append": lambda s, x: s.array.append(1.0),
    "bytearray.extend": lambda s, x: s.buffer.extend(b"a"),
    "memoryview": lambda s, x: memoryview(s.buffer).__setitem__(0, (s.buffer[0] + 1) % 256),
    "struct.pack_into": lambda s, x: struct.pack_into("<h", s.buffer, 0, s.buffer[0] + 1),
    "numpy of a tensor that is kept": lambda s, x: s.log.append(x.detach().numpy()),
    "tensor kept in a list": lambda s, x: s.tensors.append(x.sin()),
    "tensor detached and kept": lambda s, x: s.tensors.append(x.detach()),
    "number of a tensor kept": lambda s, x: s.log.append(x.sum().item()),
    "print": lambda s, x: print("one", len(s.log)),
    "print to a file": lambda s, x: print("one", file=sys.stdout),
    "write to stdout": lambda s, x: sys.stdout.write("one\n"),
    "warning": lambda s, x: warnings.warn("mine", Notice, stacklevel=1),
    "environment": lambda s, x: os.environ.__setitem__("KINDS_K", os.environ.get("KINDS_K", "") + "a"),
    "exec that writes": lambda s, x: exec("log.append(1)", {"log": s.log}),
    "eval that writes": lambda s, x: eval("log.append(1)", {"log": s.log}),
}


def _of_an_effect(effect: Effect) -> Case:
    state = State()

    def function(x: Tensor) -> Tensor:
        effect(state, x)
        return x * 2 + 1

    # The class is that of all: a count of one run must not be seen by the other.
    close = lambda: delattr(State, "total") if hasattr(State, "total") else None  # noqa: E731
    return Case(function, observe=lambda: (vars(state), os.environ.get("KINDS_K")), close=close)


for _name, _effect in EFFECTS.items():
    enter(f"effect: {_name}", lambda effect=_effect: _of_an_effect(effect), brief=True)


@kind
def list_among_the_arguments_is_appended_to() -> Any:
    out: list[Any] = []

    def function(x: Tensor, out: list[Any]) -> Tensor:
        out.append(x * 2)
        return x + 1

    return Case(function, given=lambda n: Given(sample(n), out))


@kind
def fresh_list_among_the_arguments_is_appended_to() -> Any:
    def function(x: Tensor, out: list[Any]) -> Tensor:
        out.append(x * 2)
        return x + 1

    return Case(function, given=lambda n: Given(sample(n), []))


@kind
def cache_among_the_arguments() -> Any:
    cache: dict[str, Tensor] = {"h": torch.zeros(3)}

    def function(x: Tensor, cache: dict[str, Tensor]) -> Tensor:
        cache["h"] = cache["h"] * 0.5 + x
        return cache["h"] * 2

    return Case(function, given=lambda n: Given(sample(n), cache=cache))


@kind
def attribute_of_an_argument_set() -> Any:
    box = Box(k=0)

    def function(x: Tensor, box: Any) -> Tensor:
        box.last = x * 2
        return box.last + 1

    return Case(function, given=lambda n: Given(sample(n), box))


@kind
def mutable_default_argument() -> Any:
    def function(x: Tensor, seen: list[float] = []) -> Tensor:  # noqa: B006
        seen.append(1.0)
        return x * len(seen)

    return Case(function, observe=lambda: function.__defaults__)


@kind
def keywords_collected_and_kept() -> Any:
    kept: list[Any] = []

    def function(x: Tensor, **more: Any) -> Tensor:
        kept.append(more)
        return x * more["by"]

    return Case(function, given=lambda n: Given(sample(n), by=2.0), observe=lambda: kept)


@kind
def global_counter() -> Any:
    source = "COUNT = 0\n\ndef function(x):\n    global COUNT\n    COUNT += 1\n    return x * COUNT\n"
    module = module_of("counter", source)
    return Case(module.function, observe=lambda: module.COUNT)


@kind
def global_set_to_the_same_value() -> Any:
    """Not an effect until somebody else sets it."""
    module = module_of("flag", "ON = True\n\ndef function(x):\n    global ON\n    ON = True\n    return x * 2\n")
    change = Change(lambda: setattr(module, "ON", False), idle=True)
    return Case(module.function, [change], observe=lambda: module.ON)


@kind
def attribute_set_to_a_constant() -> Any:
    box = Box(on=True)

    def function(x: Tensor) -> Tensor:
        box.on = True
        return x * 2

    return Case(function, [Change(lambda: setattr(box, "on", False), idle=True)], observe=lambda: box)


@kind
def attribute_set_and_put_back() -> Any:
    box, seen = Box(on=False, k=1.0), []

    def helper(x: Tensor) -> Tensor:
        return x * (2.0 if box.on else 1.0) * box.k

    def function(x: Tensor) -> Tensor:
        before = box.on
        box.on = True
        try:
            return helper(x)
        finally:
            box.on = before

    return Case(function, [attribute(box, "k", 5.0), attribute(box, "on", None)], observe=lambda: (box, seen))


@kind
def nonlocal_counter() -> Any:
    count = 0

    def function(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return x * count

    return Case(function, observe=lambda: count)


@kind
def nonlocal_set_to_what_it_was() -> Any:
    last: Any = None

    def function(x: Tensor) -> Tensor:
        nonlocal last
        last = x
        return x * 2

    return Case(function, observe=lambda: last)


@kind
def function_attribute_counted() -> Any:
    def function(x: Tensor) -> Tensor:
        helper.calls += 1  # type: ignore[attr-defined]
        return x * 2

    def helper() -> None:
        pass

    helper.calls = 0  # type: ignore[attr-defined]
    return Case(function, observe=lambda: vars(helper))


@kind
def property_with_a_setter() -> Any:
    class Owner:
        log: list[Any] = []  # noqa: RUF012

        @property
        def k(self) -> float:
            return 1.0

        @k.setter
        def k(self, value: Any) -> None:
            self.kept = value

    owner = Owner()

    def function(x: Tensor) -> Tensor:
        owner.k = x
        return x * owner.k

    return Case(function, observe=lambda: owner)


@kind
def property_whose_getter_counts() -> Any:
    class Owner:
        reads = 0

        @property
        def k(self) -> float:
            self.reads += 1
            return 2.0

    owner = Owner()
    return Case(lambda x: x * owner.k, observe=lambda: owner)


@kind
def attribute_hook_of_a_class() -> Any:
    log: list[Any] = []

    class Owner:
        def __setattr__(self, name: str, value: Any) -> None:
            log.append(name)

    owner = Owner()

    def function(x: Tensor) -> Tensor:
        owner.k = 1.0
        return x * 2

    return Case(function, observe=lambda: log)


@kind
def method_that_counts_its_calls() -> Any:
    class Owner:
        n = 0

        def scale(me) -> float:  # noqa: N805
            me.n += 1
            return 2.0

    owner = Owner()
    return Case(lambda x: x * owner.scale(), observe=lambda: owner)


@kind
def instances_that_are_counted() -> Any:
    class Made:
        count = 0

        def __init__(self, x: Tensor) -> None:
            Made.count += 1
            self.x = x

    return Case(lambda x: Made(x).x * 2, observe=lambda: Made.count)


@kind
def instances_that_register_themselves() -> Any:
    known: Any = weakref.WeakSet()

    class Made:
        def __init__(self, x: Tensor) -> None:
            self.x = x
            known.add(self)

    return Case(lambda x: Made(x * 2), observe=lambda: len(known))


@kind
def finalizer_of_a_fresh_object() -> Any:
    log: list[int] = []

    class Made:
        def __del__(self) -> None:
            log.append(1)

    def function(x: Tensor) -> Tensor:
        Made()
        return x * 2

    return Case(function, observe=lambda: log)


@kind
def finalizer_of_a_tensor() -> Any:
    log: list[int] = []

    def function(x: Tensor) -> Tensor:
        y = x * 2
        weakref.finalize(y, log.append, 1)
        return y.sin()

    return Case(function, observe=lambda: log)


@kind
def callback_of_a_weak_reference() -> Any:
    log: list[int] = []
    kept: list[Any] = []

    def function(x: Tensor) -> Tensor:
        box = Box()
        kept.append(weakref.ref(box, lambda _: log.append(1)))
        return x * 2

    return Case(function, observe=lambda: log)


@kind
def generator_that_is_left_unfinished() -> Any:
    log: list[int] = []

    def made() -> Any:
        try:
            yield 2.0
            yield 3.0
        finally:
            log.append(1)

    return Case(lambda x: x * next(made()), observe=lambda: log)


@kind
def context_manager_with_an_effect() -> Any:
    log: list[Any] = []

    @contextlib.contextmanager
    def noted(name: str) -> Any:
        log.append(("in", name))
        yield 2.0
        log.append(("out", name))

    def function(x: Tensor) -> Tensor:
        with noted("a") as k, contextlib.ExitStack() as stack:
            stack.callback(log.append, 3)
            return x * k

    return Case(function, observe=lambda: log)


@kind
def effect_in_an_except_and_a_finally() -> Any:
    log: list[Any] = []
    box = Box(fails=True)

    def function(x: Tensor) -> Tensor:
        try:
            if box.fails:
                raise ValueError("mine")
            return x * 2
        except ValueError as error:
            log.append(str(error))
            return x * 3
        finally:
            log.append("end")

    return Case(function, [attribute(box, "fails", False)], observe=lambda: log)


@kind
def error_that_depends_on_state() -> Any:
    box = Box(fails=False)

    def function(x: Tensor) -> Tensor:
        if box.fails:
            raise KeyError("mine")
        return x * 2

    return Case(function, [attribute(box, "fails", True)])


@kind
def error_after_an_effect() -> Any:
    box, log = Box(k=1), []  # type: ignore[var-annotated]

    def function(x: Tensor) -> Tensor:
        log.append(box.k)
        return x * (6 // box.k)

    return Case(function, [attribute(box, "k", 0)], observe=lambda: log)


@kind
def error_after_a_write_to_a_tensor() -> Any:
    state = torch.zeros(3)

    def function(x: Tensor) -> Tensor:
        state.add_(x)
        if state[0] > 1.0:
            raise RuntimeError("too much")
        return state * 2

    return Case(function, observe=lambda: state)


@kind
def error_object_that_is_kept() -> Any:
    errors: list[Any] = []

    def function(x: Tensor) -> Tensor:
        try:
            raise ValueError(len(errors))
        except ValueError as error:
            errors.append(error)
        return x * len(errors)

    return Case(function, observe=lambda: errors)


@kind
def note_in_a_context_variable() -> Any:
    variable: Any = contextvars.ContextVar("kept", default=0)

    def function(x: Tensor) -> Tensor:
        variable.set(variable.get() + 1)
        return x * 2

    return Case(function, observe=lambda: variable.get())


@kind
def tensor_in_a_context_variable() -> Any:
    variable: Any = contextvars.ContextVar("kept", default=None)

    def function(x: Tensor) -> Tensor:
        variable.set(x * 3)
        return x * 2

    return Case(function, observe=lambda: variable.get())


@kind
def local_of_a_thread() -> Any:
    local = threading.local()
    local.k = 1.0

    def function(x: Tensor) -> Tensor:
        local.k += 1
        return x * local.k

    return Case(function, observe=lambda: local.k)


@kind
def local_of_a_thread_read() -> Any:
    local = threading.local()
    local.k = 1.0
    return lambda x: x * local.k, attribute(local, "k", 5.0)


@kind
def queue_of_a_thread() -> Any:
    waiting: Any = queue.Queue()

    def function(x: Tensor) -> Tensor:
        waiting.put(x * 2)
        return x * waiting.qsize()

    return Case(function, observe=lambda: list(waiting.queue))


@kind
def thread_started_inside() -> Any:
    log: list[int] = []

    def function(x: Tensor) -> Tensor:
        worker = threading.Thread(target=log.append, args=(1,))
        worker.start()
        worker.join()
        return x * len(log)

    return Case(function, observe=lambda: log)


@kind
def thread_that_computes() -> Any:
    box = Box(k=1.0)

    def function(x: Tensor) -> Tensor:
        found: list[Tensor] = []
        worker = threading.Thread(target=lambda: found.append(x * box.k))
        worker.start()
        worker.join()
        return found[0] + 1

    return function, attribute(box, "k", 5.0)


@kind
def lock_that_is_held() -> Any:
    lock, table = threading.Lock(), {"k": 1.0}

    def function(x: Tensor) -> Tensor:
        with lock:
            return x * table["k"]

    return function, Change(lambda: table.update(k=5.0), lambda: table.update(k=1.0))


@kind
def lock_that_is_asked() -> Any:
    lock = threading.Lock()
    return lambda x: x * (2.0 if lock.locked() else 1.0), Change(lock.acquire, lock.release)


def _logger() -> tuple[logging.Logger, list[str], Change]:
    """Notes what it is told; the change lets it tell more."""
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kinds")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING)
    change = Change(lambda: logger.setLevel(logging.DEBUG), lambda: logger.setLevel(logging.WARNING))
    return logger, records, change


@kind
def logging_at_every_call() -> Any:
    logger, records, change = _logger()

    def function(x: Tensor) -> Tensor:
        logger.info("called")
        logger.warning("called %d", len(records))
        return x * 2

    return Case(function, [change], observe=lambda: records)


@kind
def logging_that_is_off_until_later() -> Any:
    logger, records, change = _logger()

    def function(x: Tensor) -> Tensor:
        logger.debug("called")
        return x * 2

    return Case(function, [change], observe=lambda: records)


@kind
def print_that_state_turns_on() -> Any:
    box = Box(loud=False)

    def function(x: Tensor) -> Tensor:
        if box.loud:
            print("loud")
        return x * 2

    return Case(function, [attribute(box, "loud", True)])


@kind
def text_stream() -> Any:
    stream = io.StringIO()

    def function(x: Tensor) -> Tensor:
        stream.write("a")
        print("b", file=stream)
        return x * stream.tell()

    return Case(function, observe=stream.getvalue)


@kind
def file_that_is_read() -> Any:
    path = Path(tempfile.mkdtemp()) / "k.txt"
    path.write_text("1.0")
    change = Change(lambda: path.write_text("5.0"), lambda: path.write_text("1.0"))
    return Case(lambda x: x * float(path.read_text()), [change])


@kind
def file_that_is_written() -> Any:
    path = Path(tempfile.mkdtemp()) / "log.txt"
    path.write_text("")

    def function(x: Tensor) -> Tensor:
        with path.open("a") as out:
            out.write("called\n")
        return x * 2

    return Case(function, observe=path.read_text)


@kind
def file_that_exists() -> Any:
    path = Path(tempfile.mkdtemp()) / "flag"
    return lambda x: x * (2.0 if path.exists() else 1.0), Change(path.touch, path.unlink)


@kind
def file_position() -> Any:
    stream = io.StringIO("1 2 3 4 5 6 7 8 9 " * 9)
    return lambda x: x * float(stream.read(2))


@kind
def environment_variable() -> Any:
    os.environ["KINDS_K"] = "1"
    change = Change(lambda: os.environ.update(KINDS_K="5"), lambda: os.environ.update(KINDS_K="1"))
    return lambda x: x * float(os.environ["KINDS_K"]) * float(os.getenv("KINDS_K", "3")), change


@kind
def environment_variable_that_appears() -> Any:
    change = Change(lambda: os.environ.update(KINDS_K="5"), lambda: os.environ.pop("KINDS_K"))
    return lambda x: x * float(os.environ.get("KINDS_K", "3")), change


def _differs() -> Callable[[Any], Any]:
    """Whether a result is another one than that of the call before: all that two runs have in common."""
    before: list[Any] = []

    def digest(out: Any) -> bool:
        before.append(out.tolist())
        return len(before) < 2 or before[-1] != before[-2]

    return digest


@kind
def clock() -> Any:
    start = time.perf_counter_ns()
    same = lambda n: Given(torch.ones(3, dtype=torch.float64))  # noqa: E731
    return Case(lambda x: x * (time.perf_counter_ns() - start), given=same, digest=_differs())


@kind
def unique_identifier() -> Any:
    same = lambda n: Given(torch.ones(3, dtype=torch.float64))  # noqa: E731
    return Case(lambda x: x * (uuid.uuid4().int % 10**9), given=same, digest=_differs())


@kind
def entropy_of_the_system() -> Any:
    same = lambda n: Given(torch.ones(3, dtype=torch.float64))  # noqa: E731
    return Case(lambda x: x * int.from_bytes(os.urandom(6), "big"), given=same, digest=_differs())


@kind
def random_number_of_python() -> Any:
    return lambda x: x * random.random() + random.choice([1.0, 2.0, 3.0])


@kind
def random_object_of_python() -> Any:
    chance = random.Random(3)
    return lambda x: x * chance.random()


@kind
def random_number_of_numpy() -> Any:
    return lambda x: x * float(numpy.random.rand())


@kind
def random_generator_of_numpy() -> Any:
    chance = numpy.random.default_rng(3)
    return lambda x: x * float(chance.random())


@kind
def random_branch() -> Any:
    return lambda x: x * 2 if random.random() < 0.5 else x - 1


@kind
def generator_as_output() -> Any:
    def function(x: Tensor) -> Any:
        for k in range(3):
            yield x * k

    return Case(function, digest=list)


@kind
def iterator_as_output() -> Any:
    return Case(lambda x: iter([x * 2, x * 3]), digest=list)


@kind
def map_as_output() -> Any:
    return Case(lambda x: map(torch.sin, [x, x + 1]), digest=list)


@kind
def closure_as_output() -> Any:
    def function(x: Tensor) -> Any:
        y = x * 2
        return lambda: y + 1

    return Case(function, digest=lambda made: made())


@kind
def object_as_output() -> Any:
    def function(x: Tensor) -> Any:
        return Box(y=x * 2, parts=[x + 1, {"a": x - 1}])

    return Case(function, use=lambda out: out.parts.append(1))


@kind
def same_object_of_state_as_output() -> Any:
    kept = [torch.zeros(3)]

    def function(x: Tensor) -> Any:
        return kept, x * 2

    return Case(function, use=lambda out: out[0].append(1), observe=lambda: kept)


@kind
def fresh_list_as_output_that_the_caller_changes() -> Any:
    return Case(lambda x: [x * 2, [x + 1]], use=lambda out: (out.append(1), out[1].clear()))


@kind
def dict_as_output_that_the_caller_changes() -> Any:
    return Case(lambda x: {"a": x * 2, "b": {"c": 1}}, use=lambda out: (out.pop("a"), out["b"].update(d=2)))


@kind
def file_handle_as_output() -> Any:
    def function(x: Tensor) -> Any:
        stream = io.StringIO()
        stream.write("a")
        return stream, x * 2

    return Case(function, digest=lambda out: (out[0].write("b"), out[0].getvalue(), out[1]))


@kind
def exit_handler() -> Any:
    def noted() -> None:
        pass

    def function(x: Tensor) -> Tensor:
        atexit.register(noted)
        return x * 2

    before = atexit._ncallbacks()
    return Case(function, observe=lambda: atexit._ncallbacks() - before, close=lambda: atexit.unregister(noted))


@kind
def collector_switched_off() -> Any:
    def function(x: Tensor) -> Tensor:
        gc.disable()
        return x * 2

    return Case(function, [Change(gc.enable, idle=True)], observe=gc.isenabled, close=gc.enable)


@kind
def recursion_limit_set() -> Any:
    before = sys.getrecursionlimit()

    def function(x: Tensor) -> Tensor:
        sys.setrecursionlimit(before + 1)
        return x * 2

    restore = Change(lambda: sys.setrecursionlimit(before), idle=True)
    return Case(function, [restore], observe=sys.getrecursionlimit, close=lambda: sys.setrecursionlimit(before))


@kind
def tee_of_an_iterator_of_state() -> Any:
    source = iter(range(1000))

    def function(x: Tensor) -> Tensor:
        first, second = itertools.tee(itertools.islice(source, 3))
        return x * (sum(first) + sum(second))

    return function
