"""Programs at holes that the rules once had: each gave stale values, lost an effect, or made an error of its own.

`f` is called seven times, before the sixth `change()`. `arg()` gives its arguments, `show(result, arguments)` what is
compared, `call(f, arguments)` how it is called; `close()` puts back what it changed.
"""

# ruff: noqa: N804, N805, N806, N818, E731, E741, E742, C409, B905

from __future__ import annotations

import collections
import contextvars
import copy
import dataclasses
import itertools
import operator
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import torchreel

PROGRAMS: dict[str, Callable[[], dict[str, Any]]] = {}


def program(make: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    PROGRAMS[make.__name__] = make
    return make


class Box:
    def __init__(self, **k: Any) -> None:
        self.__dict__.update(k)


def hook(*_: Any) -> None:
    """Of nobody."""


@program
def read_through_max() -> dict[str, Any]:
    A = Box(score=2, scale=2.0)
    L = [A]

    def f(x):
        return x * max(L, key=lambda o: o.score).scale

    def change():
        A.scale = 7.0

    return locals()


@program
def write_through_max() -> dict[str, Any]:
    A = Box(n=0)
    B = Box(n=0)

    def f(x):
        max(A, B, key=lambda b: 1).n += 1
        return x * 2

    def show(r, a):
        return A.n

    return locals()


@program
def reversed_by_the_class() -> dict[str, Any]:
    IT = itertools.count()

    class C:
        def __iter__(self):
            return iter([1])

        def __reversed__(self):
            return IT

    c = C()

    def f(x):
        return x * next(reversed(c))

    return locals()


@program
def copied_state() -> dict[str, Any]:
    STATE = {"scale": 2.0}

    class C:
        def __getstate__(self):
            return STATE

    c = C()

    def f(x):
        return x * copy.copy(c).scale

    def change():
        STATE["scale"] = 7.0

    return locals()


@program
def copied_and_written_state() -> dict[str, Any]:
    STATE = {"n": 0}

    class C:
        def __reduce__(self):
            return C, (), STATE

        def __setstate__(self, s):
            s["n"] += 1

    c = C()

    def f(x):
        copy.copy(c)
        return x * 2

    def show(r, a):
        return STATE["n"]

    return locals()


@program
def truth_of_an_object_argument() -> dict[str, Any]:
    class B:
        def __init__(s):
            s.t = torch.ones(2)

    def arg():
        return torch.ones(2), B()

    def f(x, b):
        return x * 2 if b else x * 3  # also len(b), b[0], for v in b, 1 in b (old method kept alive)

    def change():
        B.__bool__ = lambda s: False

    return locals()


@program
def missing_added_to_the_class_of_an_argument() -> dict[str, Any]:
    class D(dict):
        pass

    def arg():
        return torch.ones(2), D(t=torch.ones(2))

    def f(x, d):
        try:
            return x * d["zz"]
        except KeyError:
            return x * 2

    def change():
        D.__missing__ = lambda s, k: 7.0

    return locals()


@program
def equality_of_object_arguments() -> dict[str, Any]:
    s = Box(same=True)

    def arg():
        b = Box(t=torch.ones(2))
        return torch.ones(2), b, b if s.same else Box(t=b.t)

    def f(x, a, b):
        return x * 2 if a == b else x * 3

    def change():
        s.same = False

    return locals()


@program
def identity_within_an_object_argument() -> dict[str, Any]:
    s = Box(same=True)

    def arg():
        c = Box(v=torch.ones(2))
        return torch.ones(2), Box(a=c, b=c if s.same else Box(v=c.v))

    def f(x, h):
        return x * 2 if h.a is h.b else x * 3

    def change():
        s.same = False

    return locals()


@program
def object_argument_against_state() -> dict[str, Any]:
    K = Box(t=torch.ones(2))
    s = Box(same=False)

    def arg():
        return torch.ones(2), K if s.same else Box(t=torch.ones(2))

    def f(x, b):
        return x * 2 if b == K else x * 3

    def change():
        s.same = True

    return locals()


@program
def containers_of_tensors_compared() -> dict[str, Any]:
    s = Box(same=True)

    def arg():
        x = torch.ones(2)
        return x, x if s.same else x.detach()

    def f(x, y):
        return x * 2 if [x] == [y] else x * 3  # also (x,).index(y), {'a': x} == {'a': y}, l.remove(y)

    def change():
        s.same = False

    return locals()


@program
def hash_of_tensor_arguments() -> dict[str, Any]:
    s = Box(same=True)

    def arg():
        x = torch.ones(2)
        return x, x if s.same else x.detach()

    def f(x, y):
        return x * len({x, y})  # also {x: 2.}.get(y), y in frozenset([x]), hash((x,)) == hash((y,))

    def change():
        s.same = False

    return locals()


@program
def tensor_argument_looked_up_by_hash() -> dict[str, Any]:
    W = torch.ones(2)
    s = Box(same=False)

    def arg():
        return (W if s.same else torch.ones(2),)

    def f(x):
        return x * {W: 5.0}.get(x, 2.0)

    def change():
        s.same = True

    return locals()


@program
def identity_of_plain_values_by_operator() -> dict[str, Any]:
    a, b = tuple([1, 2]), tuple([1, 2])
    S = Box(v=a)

    def f(x):
        return x * 2 if operator.is_(S.v, a) else x * 3

    def change():
        S.v = b

    return locals()


@program
def identity_of_namedtuples() -> dict[str, Any]:
    N = collections.namedtuple("N", "a")
    a, b = N(1), N(1)
    S = Box(v=a)  # also np.float64(1.5)

    def f(x):
        return x * 2 if S.v is a else x * 3

    def change():
        S.v = b

    return locals()


@program
def attributes_of_a_tuple() -> dict[str, Any]:
    class T(tuple):
        pass

    a = T((1,))
    a.tag = 2.0
    b = T((1,))
    b.tag = 7.0
    S = Box(t=a)

    def f(x):
        return x * S.t.tag

    def change():
        S.t = b

    return locals()


@program
def nan_as_a_key() -> dict[str, Any]:
    A, B = float("nan"), float("nan")
    D = {A: 5.0}
    s = Box(k=A)

    def arg():
        return torch.ones(2), s.k

    def f(x, k):
        return x * D.get(k, 2.0)

    def change():
        s.k = B

    return locals()


@program
def complex_nan_in_a_list() -> dict[str, Any]:
    A, B = complex("nan"), complex("nan")
    L = [A]
    S = Box(k=A)

    def f(x):
        return x * 5 if S.k in L else x * len({S.k, A})

    def change():
        S.k = B

    return locals()


@program
def another_number_of_an_int_class() -> dict[str, Any]:
    class I(int):
        pass

    S = Box(n=I(3))
    S.n.tag = 0

    def f(x):
        return x * S.n

    def change():
        del S.n
        S.n = I(5)
        S.n.tag = 0

    return locals()


@program
def property_subclass_with_a_getter_in_c() -> dict[str, Any]:
    class P(property):
        pass

    class C:
        v = P(operator.attrgetter("h"))

    c = C()
    c.h = 2.0

    def f(x):
        return x * c.v

    def change():
        c.h = 7.0

    return locals()


@program
def class_property_with_a_getter_in_c() -> dict[str, Any]:
    class C:
        __class__ = property(operator.attrgetter("k"))

    c = C()
    c.k = int

    def f(x):
        return x * 2 if isinstance(c, int) else x * 3

    def change():
        c.k = str

    return locals()


@program
def class_getitem_in_c() -> dict[str, Any]:
    T = {"a": 2.0}

    class C:
        __class_getitem__ = T.get

    def f(x):
        return x * C["a"]

    def change():
        T["a"] = 7.0

    return locals()


@program
def module_getattr_in_c() -> dict[str, Any]:
    T = {"a": 2.0}
    m = types.ModuleType("m")
    m.__getattr__ = T.__getitem__

    def f(x):
        return x * m.a

    def change():
        T["a"] = 7.0

    return locals()


@program
def new_in_c() -> dict[str, Any]:
    L = []

    class C:
        __new__ = staticmethod(L.append)

    def f(x):
        C()
        return x * 2

    def show(r, a):
        return len(L)

    return locals()


@program
def raised_class() -> dict[str, Any]:
    class E(Exception):
        pass

    L = []

    def f(x):
        try:
            raise E
        except E:
            return x * 2

    def show(r, a):
        return len(L)

    def change():
        E.__init__ = lambda s: L.append(1)

    return locals()


@program
def bases_of_a_raised_class() -> dict[str, Any]:
    class A(Exception):
        pass

    class B(A):
        pass

    class A2(Exception):
        pass

    def f(x):
        try:
            raise B
        except A:
            return x * 2
        except Exception:
            return x * 3

    def change():
        B.__bases__ = (A2,)

    return locals()


@program
def call_that_fails_for_its_arguments() -> dict[str, Any]:
    def g(a, b):
        return a * 5

    def f(x):
        try:
            return g(x)  # also a class whose __init__ is called wrongly
        except TypeError:
            return x * 2

    def change():
        g.__defaults__ = (1,)

    return locals()


@program
def default_factory() -> dict[str, Any]:
    D = collections.defaultdict(None)

    def f(x):
        try:
            return x * D["k"]
        except KeyError:
            return x * 2

    def change():
        D.default_factory = lambda: 5.0

    return locals()


@program
def iter_by_a_lambda() -> dict[str, Any]:
    IT = itertools.count()

    class C:
        __iter__ = lambda self: IT

    c = C()

    def f(x):
        return x * sum(b for a, b in zip((1, 2), c))

    return locals()


@program
def eq_by_a_lambda() -> dict[str, Any]:
    L = [1]

    class C:
        __eq__ = lambda self, o: L

    c = C()

    def f(x):
        return x * 2 if c in [5] else x * 3

    def change():
        L.clear()

    return locals()


@program
def instancheck_gives_a_container() -> dict[str, Any]:
    FLAG = [1]

    class M(type):
        def __instancecheck__(c, o):
            return FLAG

    class A(metaclass=M):
        pass

    b = Box()

    def f(x):
        return x * 2 if isinstance(b, A) else x * 3

    def change():
        FLAG.clear()

    return locals()


@program
def copied_context() -> dict[str, Any]:
    v = contextvars.ContextVar("v")

    def f(x):
        return x * (1 + len(contextvars.copy_context()))

    def change():
        v.set(1)

    return locals()


@program
def exception_that_the_caller_handles() -> dict[str, Any]:
    s = Box(inside=False)

    class E(Exception):
        pass

    def call(f, a):
        if not s.inside:
            return f(*a)
        try:
            raise KeyError
        except KeyError:
            return f(*a)

    def f(x):
        try:
            raise E()
        except E as e:
            return x * 2 if e.__context__ is None else x * 3

    def change():
        s.inside = True

    return locals()


@program
def join_of_bytearrays() -> dict[str, Any]:
    D = bytearray(b"ab")

    def f(x):
        return x * len(b"-".join([D, b"z"]))

    def change():
        D.append(65)

    return locals()


@program
def attributes_of_a_numpy_subclass() -> dict[str, Any]:
    class F(np.float64):
        pass

    v = F(2.0)
    v.s = 2.0

    def f(x):
        return x * v.s

    def change():
        v.s = 7.0

    return locals()


@program
def numpy_void() -> dict[str, Any]:
    A = np.zeros(1, dtype=[("a", "f8")])
    V = A[0]

    def f(x):
        return x * (2 + V.tolist()[0])

    def change():
        A["a"] = 7.0

    return locals()


@program
def result_with_slots() -> dict[str, Any]:
    n = Box(n=0)

    def arg():
        n.n += 1
        return (torch.full((2,), float(n.n)),)

    @dataclasses.dataclass(slots=True)
    class R:
        t: object

    def f(x):
        return R(x * 2)

    def show(r, a):
        return r.t.tolist()

    return locals()


@program
def result_that_is_an_exception() -> dict[str, Any]:
    n = Box(n=0)

    def arg():
        n.n += 1
        return (torch.full((2,), float(n.n)),)

    class E(Exception):
        pass

    def f(x):
        return E(x * 2)

    def show(r, a):
        return r.args[0].tolist()

    return locals()


@program
def result_with_a_closure() -> dict[str, Any]:
    n = Box(n=0)

    def arg():
        n.n += 1
        return (torch.full((2,), float(n.n)),)

    class R:
        pass

    def f(x):
        y = x * 2
        r = R()
        r.t = y
        r.fn = lambda: y
        r.g = y.add
        return r

    def show(r, a):
        return r.fn().tolist(), r.g(0).tolist()

    return locals()


@program
def result_keyed_by_tensors() -> dict[str, Any]:
    n = Box(n=0)

    def arg():
        n.n += 1
        return (torch.full((2,), float(n.n)),)

    def f(x):
        return {x * 2: 1}

    def show(r, a):
        return next(iter(r)).tolist()

    return locals()


@program
def result_that_is_state() -> dict[str, Any]:
    CFG = Box(v=torch.ones(1))
    L = [1]

    class R:
        pass

    def f(x):
        r = R()
        r.t = x * 2
        r.l = L
        return CFG, r

    def show(r, a):
        return r[0] is CFG, r[1].l is L

    return locals()


@program
def result_held_by_an_argument() -> dict[str, Any]:
    def arg():
        return torch.ones(2), Box(c=Box(t=torch.ones(1))), [Box(t=torch.ones(1))]

    def f(x, b, l):
        return x * 2, b.c, l[0]

    def show(r, a):
        return r[1] is a[1].c, r[2] is a[2][0]

    return locals()


@program
def one_object_twice_in_a_result() -> dict[str, Any]:
    class R:
        pass

    def f(x):
        r = R()
        r.l = [x * 2]
        return r, r, r.l

    def show(r, a):
        return r[0] is r[1], r[0].l is r[2]

    return locals()


@program
def result_object_without_tensors() -> dict[str, Any]:
    N = collections.namedtuple("N", "t s")

    class R:
        n = 0

    def f(x):
        return x * 2, R(), N(x, {0})

    def show(r, a):
        r[1].n += 1
        r[2].s.add(len(r[2].s))
        return r[1].n, len(r[2].s)

    return locals()


@program
def result_that_cannot_be_copied() -> dict[str, Any]:
    def arg():
        return torch.ones(2), Box(t=torch.ones(2), lock=threading.Lock())

    def f(x, b):
        return x * b.t

    return locals()


@program
def result_with_getstate() -> dict[str, Any]:
    class R:
        def __getstate__(self):
            return {"t": self.t}

    def f(x):
        r = R()
        r.t = x * 2
        r.note = "n"
        return r

    def show(r, a):
        return sorted(vars(r))

    return locals()


@program
def namedtuple_with_a_strict_new() -> dict[str, Any]:
    class Q(collections.namedtuple("Q", "a b")):
        def __new__(cls, a):
            return super().__new__(cls, a, a * 2)

    def f(x):
        return Q(x * 3)

    def show(r, a):
        return r.b.tolist()

    return locals()


@program
def namedtuple_with_a_changing_new() -> dict[str, Any]:
    class Q(collections.namedtuple("Q", "a b")):
        def __new__(cls, a, b):
            return super().__new__(cls, a, b + 1)

    def f(x):
        return Q(x * 3, 1)

    def show(r, a):
        return r.b

    return locals()


@program
def getattr_adds_an_entry() -> dict[str, Any]:
    class A(dict):
        def __getattr__(self, k):
            v = self[k] = A()
            return v

    d = A(a=1)

    def f(x):
        try:
            return x * d["q"]
        except KeyError:
            return x * 2

    def show(r, a):
        return list(d)

    return locals()


@program
def weakly_held_during_the_recorded_call() -> dict[str, Any]:
    WS = weakref.WeakSet()

    def f(x):
        t = Box()
        WS.add(t)
        del t
        return x * (2 + len(WS))

    return locals()


@program
def finally_of_a_generator_that_goes() -> dict[str, Any]:
    L = []

    def gen():
        try:
            yield 1
        finally:
            L.append("closed")

    def f(x):
        g = gen()
        next(g)
        del g
        L.append("after")
        return x * 2

    def show(r, a):
        o = list(L)
        L.clear()
        return o

    return locals()


@program
def attribute_of_a_graphed_function() -> dict[str, Any]:
    def h(v):
        return v

    h.k = 2.0
    g = torchreel.graphed(h)

    def f(x):
        return x * g.k

    def change():
        h.k = 7.0

    return locals()


@program
def equal_value_set_back() -> dict[str, Any]:
    a, b = tuple([1, 2]), tuple([1, 2])
    S = Box(v=a)

    def f(x):
        S.v = a
        return x * 2

    def show(r, x):
        return S.v is a

    def change():
        S.v = b

    return locals()


@program
def range_with_other_ends() -> dict[str, Any]:
    S = Box(r=range(0, 3, 2))

    def f(x):
        return x * 2, S.r

    def show(r, a):
        return r[1]

    def change():
        S.r = range(0, 4, 2)

    return locals()


@program
def effects_on_what_torch_keeps() -> dict[str, Any]:
    W = torch.ones(2)

    def f(x):
        torch._C._autograd._unsafe_set_version_counter((W,), (7,))
        return x * W

    def change():
        W.add_(0)

    def show(r, a):
        return W._version

    return locals()


@program
def patched_operator_of_tensors() -> dict[str, Any]:
    old = torch.Tensor.__mul__

    def f(x):
        return x * 2  # also x[0], float(x), x == y, 2 * x

    def change():
        torch.Tensor.__mul__ = lambda a, b: torch.add(a, b) + 5

    def close():
        torch.Tensor.__mul__ = old

    def arg():
        return (torch.ones(2),)

    return locals()
