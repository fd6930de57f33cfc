"""Programs in every corner of Python, and training code as it is written.

Each is made by a function without arguments, and gives a `World`: see lockstep.py. They are as odd as programs can be.
"""

# ruff: noqa  (no linter would have them as they are)
# mypy: ignore-errors

import collections, contextlib, functools, itertools, operator, types, warnings, weakref, copy, math, dataclasses, enum, sys, threading, contextvars, fractions, decimal, datetime, re, struct, array, pickle, inspect, string, random, bisect, heapq, typing, abc, numbers
import torch
from torch import nn
from torch.nn import functional as F
from tests.guards.lockstep import World

PROGRAMS = {}
P = PROGRAMS


def program(f):
    PROGRAMS[f.__name__] = f
    return f


class Box:
    def __init__(self, **kw):
        self.__dict__.update(kw)


def inplace(get, make_v, change, back, seen=None):
    def make():
        box = Box(v=make_v())

        def fn(x):
            return get(box, x)

        return World(fn, lambda: change(box.v), lambda: back(box.v), *([lambda: seen(box.v)] if seen else []))

    return make


def sw(get, a, b):
    def make():
        va, vb = a(), b()
        box = Box(v=va)

        def fn(x):
            return get(box, x)

        return World(fn, lambda: setattr(box, "v", vb), lambda: setattr(box, "v", va))

    return make


seta = lambda n, v: lambda o: setattr(o, n, v)


# descriptors, slots
class Desc:
    def __init__(self):
        self.k = 2

    def __get__(self, o, t=None):
        return self.k


class DescSet(Desc):
    def __set__(self, o, v):
        self.k = v


class HasDesc:
    d = Desc()
    e = DescSet()


P["desc"] = inplace(
    lambda b, x: x * b.v.d,
    HasDesc,
    lambda v: setattr(HasDesc.__dict__["d"], "k", 5),
    lambda v: setattr(HasDesc.__dict__["d"], "k", 2),
)
P["desc_class"] = inplace(
    lambda b, x: x * type(b.v).d,
    HasDesc,
    lambda v: setattr(HasDesc.__dict__["d"], "k", 5),
    lambda v: setattr(HasDesc.__dict__["d"], "k", 2),
)


@program
def desc_write():
    h = HasDesc()
    HasDesc.__dict__["e"].k = 2

    def fn(x):
        h.e = 7
        return x * h.e

    return World(fn, lambda: setattr(HasDesc.__dict__["e"], "k", 2), seen=lambda: HasDesc.__dict__["e"].k)


@program
def desc_shadow():
    h = HasDesc()

    def fn(x):
        return x * h.d

    return World(fn, lambda: h.__dict__.__setitem__("d", 9), lambda: h.__dict__.pop("d"))


@program
def desc_becomes_data():
    class D:
        def __get__(self, o, t=None):
            return 2

    class H:
        d = D()

    h = H()
    h.__dict__["d"] = 5

    def fn(x):
        return x * h.d

    def c():
        D.__set__ = lambda s, o, v: None

    def b():
        del D.__set__

    return World(fn, c, b)


class Slots:
    __slots__ = ("a", "b")


def slots(a):
    s = Slots()
    s.a = a
    return s


P["slot_missing"] = inplace(
    lambda b, x: x * (getattr(b.v, "b", 3)), lambda: slots(1), lambda v: setattr(v, "b", 7), lambda v: delattr(v, "b")
)


@program
def slot_realloc():
    box = Box(v=slots(2))

    def fn(x):
        return x * box.v.a

    def c():
        box.v = None
        box.v = slots(5)

    def b():
        box.v = None
        box.v = slots(2)

    return World(fn, c, b)


@program
def slot_nested_realloc():
    box = Box(v=slots(slots(2)))

    def fn(x):
        return x * box.v.a.a

    def c():
        box.v.a = None
        box.v.a = slots(5)

    def b():
        box.v.a = None
        box.v.a = slots(2)

    return World(fn, c, b)


@program
def list_realloc():
    box = Box(v=[[1, 2]])

    def fn(x):
        return x * box.v[0][1]

    def c():
        box.v[0] = None
        box.v[0] = [1, 5]

    def b():
        box.v[0] = None
        box.v[0] = [1, 2]

    return World(fn, c, b)


@program
def dict_realloc():
    box = Box(v={"a": {"k": 2}})

    def fn(x):
        return x * box.v["a"]["k"]

    def c():
        box.v["a"] = None
        box.v["a"] = {"k": 5}

    def b():
        box.v["a"] = None
        box.v["a"] = {"k": 2}

    return World(fn, c, b)


@program
def tuple_realloc():
    box = Box(v=([2], 1))

    def fn(x):
        return x * box.v[0][0]

    def c():
        box.v = None
        box.v = ([5], 1)

    def b():
        box.v = None
        box.v = ([2], 1)

    return World(fn, c, b)


@program
def set_realloc():
    box = Box(v={1, 2})

    def fn(x):
        return x * sum(box.v)

    def c():
        box.v = None
        box.v = {1, 5}

    def b():
        box.v = None
        box.v = {1, 2}

    return World(fn, c, b)


@program
def cell_realloc():
    def mk(k):
        return lambda x: x * k

    box = Box(f=mk(2))

    def fn(x):
        return box.f(x)

    def c():
        box.f = None
        box.f = mk(5)

    def b():
        box.f = None
        box.f = mk(2)

    return World(fn, c, b)


@program
def method_realloc():
    class A:
        def __init__(self, k):
            self.k = k

        def m(self, x):
            return x * self.k

    box = Box(f=A(2).m)

    def fn(x):
        return box.f(x)

    def c():
        box.f = None
        box.f = A(5).m

    def b():
        box.f = None
        box.f = A(2).m

    return World(fn, c, b)


@program
def obj_realloc():
    box = Box(v=Box(k=2))

    def fn(x):
        return x * box.v.k

    def c():
        box.v = None
        box.v = Box(k=5)

    def b():
        box.v = None
        box.v = Box(k=2)

    return World(fn, c, b)


@program
def partial_realloc():
    def f(x, k):
        return x * k

    box = Box(v=functools.partial(f, k=2))

    def fn(x):
        return box.v(x)

    def c():
        box.v = None
        box.v = functools.partial(f, k=5)

    def b():
        box.v = None
        box.v = functools.partial(f, k=2)

    return World(fn, c, b)


@program
def tensor_realloc():
    box = Box(v=torch.full((3,), 2.0))

    def fn(x):
        return x * box.v

    def c():
        box.v = None
        box.v = torch.full((3,), 5.0)

    def b():
        box.v = None
        box.v = torch.full((3,), 2.0)

    return World(fn, c, b)


@program
def frozen_in_frozen():
    box = Box(v=frozenset([frozenset([1])]))

    def fn(x):
        return x * (2 if frozenset([1]) in box.v else 3)

    def c():
        box.v = None
        box.v = frozenset([frozenset([5])])

    def b():
        box.v = None
        box.v = frozenset([frozenset([1])])

    return World(fn, c, b)


@program
def frozen_default_arg():
    def g(x, s=frozenset([1])):
        return x * sum(s)

    def fn(x):
        return g(x)

    def c():
        g.__defaults__ = None
        g.__defaults__ = (frozenset([5]),)

    def b():
        g.__defaults__ = None
        g.__defaults__ = (frozenset([1]),)

    return World(fn, c, b)


@program
def union_type_realloc():
    box = Box(v=int | str)

    def fn(x):
        return x * (2 if isinstance(1, box.v) else 3)

    def c():
        box.v = None
        box.v = float | str

    def b():
        box.v = None
        box.v = int | str

    return World(fn, c, b)


@program
def slice_realloc():
    box = Box(v=slice(0, 2))

    def fn(x):
        return x[box.v]

    def c():
        box.v = None
        box.v = slice(1, 3)

    def b():
        box.v = None
        box.v = slice(0, 2)

    return World(fn, c, b)


# metaclasses etc.
@program
def meta_prop():
    class M(type):
        n = 2

        @property
        def k(cls):
            return cls.n

    class A(metaclass=M):
        pass

    def fn(x):
        return x * A.k

    return World(fn, lambda: setattr(M, "n", 5), lambda: setattr(M, "n", 2))


@program
def meta_getattr():
    d = {"k": 2}

    class M(type):
        def __getattr__(cls, n):
            return d[n]

    class A(metaclass=M):
        pass

    def fn(x):
        return x * A.k

    return World(fn, lambda: d.update(k=5), lambda: d.update(k=2))


@program
def meta_call():
    d = {"k": 2}

    class M(type):
        def __call__(cls, *a):
            return d["k"]

    class A(metaclass=M):
        pass

    def fn(x):
        return x * A()

    return World(fn, lambda: d.update(k=5), lambda: d.update(k=2))


@program
def meta_len_iter():
    d = [2, 3]

    class M(type):
        def __len__(cls):
            return len(d)

        def __iter__(cls):
            return iter(d)

        def __contains__(cls, k):
            return k in d

        def __getitem__(cls, k):
            return d[k]

    class A(metaclass=M):
        pass

    def fn(x):
        return x * len(A) * sum(A) * (2 if 3 in A else 5) * A[0]

    return World(fn, lambda: d.append(5), lambda: d.pop())


@program
def meta_bool():
    d = [2]

    class M(type):
        def __bool__(cls):
            return bool(d)

    class A(metaclass=M):
        pass

    def fn(x):
        return x * (2 if A else 3)

    return World(fn, lambda: d.clear(), lambda: d.append(1))


@program
def meta_setattr():
    log = []

    class M(type):
        def __setattr__(cls, n, v):
            log.append(n)
            super().__setattr__(n, v)

    class A(metaclass=M):
        k = 2

    def fn(x):
        A.k = A.k
        return x * 2

    return World(fn, seen=lambda: len(log))


@program
def class_getitem():
    d = {"k": 2}

    class A:
        def __class_getitem__(cls, n):
            return d[n]

    def fn(x):
        return x * A["k"]

    return World(fn, lambda: d.update(k=5), lambda: d.update(k=2))


@program
def missing():
    d = {"k": 2}

    class A(dict):
        def __missing__(self, n):
            return d[n]

    a = A()

    def fn(x):
        return x * a["k"]

    return World(fn, lambda: a.update(k=5), lambda: a.pop("k"))


@program
def missing_state():
    d = {"k": 2}

    class A(dict):
        def __missing__(self, n):
            return d[n]

    a = A()

    def fn(x):
        return x * a["k"]

    return World(fn, lambda: d.update(k=5), lambda: d.update(k=2))


@program
def missing_added():
    class A(dict):
        pass

    a = A()

    def fn(x):
        try:
            return x * a["k"]
        except KeyError:
            return x

    def c():
        A.__missing__ = lambda s, k: 5

    def b():
        del A.__missing__

    return World(fn, c, b)


@program
def defaultdict_factory():
    a = collections.defaultdict(int, k=2)

    def fn(x):
        return x * a["k"] * (2 if "z" in a else 3) * a.get("z", 1)

    return World(fn, lambda: a.update(z=5), lambda: a.pop("z"))


@program
def index_state():
    class I:
        def __init__(self):
            self.k = 0

        def __index__(self):
            return self.k

    i = I()
    l = (2, 5)

    def fn(x):
        return x * l[i] * [3, 7][i] + x[i]

    return World(fn, lambda: setattr(i, "k", 1), lambda: setattr(i, "k", 0))


@program
def index_patched():
    class I:
        def __index__(self):
            return 0

    i = I()
    l = (2, 5)
    f0 = I.__index__

    def fn(x):
        return x * l[i]

    def c():
        I.__index__ = lambda s: 1

    def b():
        I.__index__ = f0

    return World(fn, c, b)


class SubInt(int):
    k = 2

    def __mul__(self, o):
        return o * self.k

    __rmul__ = __mul__


P["subint"] = inplace(
    lambda b, x: b.v * x, lambda: SubInt(3), lambda v: setattr(v, "k", 5), lambda v: setattr(v, "k", 2)
)


class SubStr(str):
    def __eq__(self, o):
        return self.ok

    def __hash__(self):
        return str.__hash__(self)


def substr():
    s = SubStr("a")
    s.ok = True
    return s


P["substr_eq"] = inplace(
    lambda b, x: x * (2 if b.v == "z" else 3),
    substr,
    lambda v: setattr(v, "ok", False),
    lambda v: setattr(v, "ok", True),
)
P["substr_in"] = inplace(
    lambda b, x: x * (2 if "z" in [b.v] else 3),
    substr,
    lambda v: setattr(v, "ok", False),
    lambda v: setattr(v, "ok", True),
)
P["substr_key"] = inplace(
    lambda b, x: x * (2 if b.v in {"a": 1} else 3),
    substr,
    lambda v: setattr(v, "ok", False),
    lambda v: setattr(v, "ok", True),
)


class SubFloat(float):
    def __float__(self):
        return self.k


def subfloat():
    s = SubFloat(1.0)
    s.k = 2.0
    return s


P["subfloat"] = inplace(
    lambda b, x: x * float(b.v), subfloat, lambda v: setattr(v, "k", 5.0), lambda v: setattr(v, "k", 2.0)
)
P["subfloat_op"] = inplace(
    lambda b, x: x * b.v, subfloat, lambda v: setattr(v, "k", 5.0), lambda v: setattr(v, "k", 2.0)
)


class SubTuple(tuple):
    def __getitem__(self, i):
        return self.k


def subtuple():
    s = SubTuple((1, 2))
    s.k = 2
    return s


P["subtuple"] = inplace(lambda b, x: x * b.v[0], subtuple, lambda v: setattr(v, "k", 5), lambda v: setattr(v, "k", 2))
P["subtuple_len"] = inplace(
    lambda b, x: x * sum(b.v) * b.v[0], subtuple, lambda v: setattr(v, "k", 5), lambda v: setattr(v, "k", 2)
)


class SubList(list):
    def __len__(self):
        return self.k

    def __contains__(self, i):
        return self.k == 5


def sublist():
    s = SubList((1, 2))
    s.k = 2
    return s


P["sublist"] = inplace(
    lambda b, x: x * len(b.v) * (2 if 9 in b.v else 3),
    sublist,
    lambda v: setattr(v, "k", 5),
    lambda v: setattr(v, "k", 2),
)


class NT(collections.namedtuple("NT", "a b")):
    f = 2

    def total(self):
        return self.a[0] * self.f


P["namedtuple_method"] = inplace(
    lambda b, x: x * b.v.total(), lambda: NT([1], 2), lambda v: v.a.__setitem__(0, 7), lambda v: v.a.__setitem__(0, 1)
)


class Fl(enum.Flag):
    A = 1
    B = 2


P["flag"] = sw(lambda b, x: x * (2 if Fl.A in b.v else 3) * (b.v | Fl.B).value, lambda: Fl.A, lambda: Fl.B)
P["enum_lookup"] = sw(lambda b, x: x * Fl(b.v).value * len(Fl[("A", "B")[b.v - 1]].name), lambda: 1, lambda: 2)


# generators
@program
def gen_send():
    box = Box(k=2)

    def g():
        v = 1
        while True:
            v = yield v * box.k

    def fn(x):
        i = g()
        next(i)
        return x * i.send(3)

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def gen_outer():
    def g():
        n = 0
        while True:
            n += 1
            yield n

    i = g()

    def fn(x):
        return x * next(i)

    return World(fn)


@program
def gen_outer_send():
    def g():
        n = 0
        while True:
            n = (yield n) or n

    i = g()
    next(i)

    def fn(x):
        return x * i.send(3)

    return World(fn, lambda: i.send(7))


@program
def gen_throw():
    box = Box(k=2)

    def g():
        try:
            yield 1
        except ValueError as e:
            yield box.k * e.args[0]

    def fn(x):
        i = g()
        next(i)
        return x * i.throw(ValueError(3))

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def yield_from():
    l = [1, 2]

    def g():
        yield from l

    def fn(x):
        return x * sum(g())

    return World(fn, lambda: l.append(5), lambda: l.pop())


@program
def gen_finally_effect():
    log = []

    def g():
        try:
            yield 1
        finally:
            log.append(1)

    def fn(x):
        for v in g():
            return x * v

    return World(fn, seen=lambda: len(log))


# exceptions
@program
def exc_state():
    box = Box(k=2)

    class E(Exception):
        def __init__(self, k):
            super().__init__(k)
            self.k = k

    def fn(x):
        try:
            raise E(box.k)
        except E as e:
            return x * e.k * e.args[0]

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def exc_match():
    class A(Exception):
        pass

    class B(Exception):
        pass

    box = Box(e=(A,))

    def fn(x):
        try:
            try:
                raise A()
            except box.e:
                return x * 2
        except A:
            return x * 3

    return World(fn, lambda: setattr(box, "e", (B,)), lambda: setattr(box, "e", (A,)))


@program
def exc_raised_out():
    box = Box(k=0)

    def fn(x):
        if box.k:
            raise ValueError(f"k is {box.k}")
        return x * 2

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 0))


@program
def exc_group():
    def fn(x):
        try:
            raise ExceptionGroup("g", [ValueError(1)])
        except* ValueError as e:
            y = x * len(e.exceptions)
        return y

    return World(fn)


@program
def exitstack():
    log = []

    def fn(x):
        with contextlib.ExitStack() as s:
            s.callback(log.append, 1)
            return x * 2

    return World(fn, seen=lambda: len(log))


@program
def exitstack_read():
    box = Box(k=2)

    @contextlib.contextmanager
    def cm():
        yield box.k

    def fn(x):
        with contextlib.ExitStack() as s:
            k = s.enter_context(cm())
            return x * k

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def suppress():
    d = {}

    def fn(x):
        with contextlib.suppress(KeyError):
            return x * d["k"]
        return x

    return World(fn, lambda: d.update(k=5), lambda: d.clear())


# closures
@program
def shared_cells():
    k = 2

    def get():
        return k

    def set_(v):
        nonlocal k
        k = v

    def fn(x):
        return x * get()

    return World(fn, lambda: set_(5), lambda: set_(2))


@program
def nonlocal_counter():
    n = 0

    def fn(x):
        nonlocal n
        n += 1
        return x * n

    return World(fn)


@program
def cell_set_same():
    n = 2

    def fn(x):
        nonlocal n
        n = 2
        return x * n

    def c():
        nonlocal n
        n = 5

    return World(fn, c, seen=lambda: n)


@program
def del_local_walrus():
    l = [3]

    def fn(x):
        a = l
        del a
        if (n := len(l)) > 1:
            return x * n
        *p, q = l
        return x * q

    return World(fn, lambda: l.append(7), lambda: l.pop())


@program
def match_stmt():
    box = Box(v={"k": 2})

    def fn(x):
        match box.v:
            case {"k": k}:
                return x * k
            case [a, *r]:
                return x * a
            case _:
                return x

    return World(fn, lambda: setattr(box, "v", [7]), lambda: setattr(box, "v", {"k": 2}))


@program
def match_value():
    box = Box(v=1)

    def fn(x):
        match box.v:
            case 1 | 2:
                return x * 2
            case int():
                return x * 3
        return x

    return World(fn, lambda: setattr(box, "v", 7), lambda: setattr(box, "v", 1))


@program
def class_body():
    box = Box(k=2)

    def fn(x):
        class A:
            k = box.k

        return x * A.k

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def default_per_call():
    l = [2]

    def fn(x):
        def g(a=l[0]):
            return a

        return x * g()

    return World(fn, lambda: l.__setitem__(0, 5), lambda: l.__setitem__(0, 2))


@program
def mutable_default():
    def g(x, acc=[]):
        acc.append(1)
        return x * len(acc)

    def fn(x):
        return g(x)

    return World(fn)


@program
def kwdefaults():
    def g(x, *, k=2):
        return x * k

    def fn(x):
        return g(x)

    return World(fn, lambda: g.__kwdefaults__.update(k=5), lambda: g.__kwdefaults__.update(k=2))


@program
def code_swap():
    def g(x):
        return x * 2

    def h(x):
        return x * 5

    c0 = g.__code__

    def fn(x):
        return g(x)

    def c():
        g.__code__ = h.__code__

    def b():
        g.__code__ = c0

    return World(fn, c, b)


@program
def import_swap():
    a, b_ = types.ModuleType("guards_module"), types.ModuleType("guards_module")
    a.k, b_.k = 2, 5
    sys.modules["guards_module"] = a

    def fn(x):
        import guards_module

        return x * guards_module.k

    return World(
        fn, lambda: sys.modules.__setitem__("guards_module", b_), lambda: sys.modules.__setitem__("guards_module", a)
    )


@program
def dunder_import():
    def fn(x):
        return x * __import__("math").floor(2.5)

    return World(fn)


@program
def eval_exec():
    box = Box(k=2)

    def fn(x):
        return x * eval("b.k", {"b": box})

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def frame_inspect():
    box = Box(k=2)

    def g():
        return sys._getframe(1).f_locals["k"]

    def fn(x):
        k = box.k
        return x * g()

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def locals_read():
    box = Box(k=2)

    def fn(x):
        k = box.k
        return x * locals()["k"]

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def thread_local():
    t = threading.local()
    t.k = 2

    def fn(x):
        return x * t.k

    return World(fn, lambda: setattr(t, "k", 5), lambda: setattr(t, "k", 2))


@program
def ctxvar():
    v = contextvars.ContextVar("v", default=2)

    def fn(x):
        return x * v.get()

    return World(fn, lambda: v.set(5), lambda: v.set(2))


@program
def ctxvar_list():
    v = contextvars.ContextVar("v")
    l = [2]
    v.set(l)

    def fn(x):
        return x * v.get()[0]

    return World(fn, lambda: l.__setitem__(0, 5), lambda: l.__setitem__(0, 2))


@program
def chainmap():
    a, b_ = {"k": 2}, {"k": 3, "z": 1}
    m = collections.ChainMap(a, b_)

    def fn(x):
        return x * m["k"] * m["z"] * len(m)

    return World(fn, lambda: a.pop("k"), lambda: a.update(k=2))


@program
def mappingproxy():
    d = {"k": 2}
    m = types.MappingProxyType(d)

    def fn(x):
        return x * m["k"]

    return World(fn, lambda: d.update(k=5), lambda: d.update(k=2))


@program
def userdict():
    d = collections.UserDict(k=2)

    def fn(x):
        return x * d["k"] * len(d) * (2 if "z" in d else 3)

    return World(fn, lambda: d.update(z=5), lambda: d.pop("z"))


@program
def userlist():
    d = collections.UserList([2])

    def fn(x):
        return x * d[0] * len(d) * sum(d)

    return World(fn, lambda: d.append(5), lambda: d.pop())


@program
def weak_proxy():
    o = Box(k=2)
    p = weakref.proxy(o)

    def fn(x):
        return x * p.k

    return World(fn, lambda: setattr(o, "k", 5), lambda: setattr(o, "k", 2))


@program
def weak_ref():
    o = [Box(k=2)]
    r = [weakref.ref(o[0])]

    def fn(x):
        t = r[0]()
        return x if t is None else x * t.k

    def b():
        o.append(Box(k=3))
        r[0] = weakref.ref(o[0])

    return World(fn, lambda: o.clear(), b)


@program
def weak_dict():
    k = Box()
    d = weakref.WeakKeyDictionary({k: 2})

    def fn(x):
        return x * d[k]

    return World(fn, lambda: d.__setitem__(k, 5), lambda: d.__setitem__(k, 2))


@program
def weak_set():
    k = Box()
    d = weakref.WeakSet([k])

    def fn(x):
        return x * (2 if k in d else 3) * (1 + len(d))

    return World(fn, lambda: d.discard(k), lambda: d.add(k))


P["memoryview"] = inplace(
    lambda b, x: x * memoryview(b.v)[0],
    lambda: bytearray(b"ab"),
    lambda v: v.__setitem__(0, 5),
    lambda v: v.__setitem__(0, 97),
)
P["bytearray"] = inplace(
    lambda b, x: x * b.v[0] * len(b.v),
    lambda: bytearray(b"ab"),
    lambda v: v.__setitem__(0, 5),
    lambda v: v.__setitem__(0, 97),
)
P["array"] = inplace(
    lambda b, x: x * b.v[0], lambda: array.array("i", [2]), lambda v: v.__setitem__(0, 5), lambda v: v.__setitem__(0, 2)
)
P["tensor_of_array"] = inplace(
    lambda b, x: x * torch.tensor(b.v),
    lambda: array.array("i", [2]),
    lambda v: v.__setitem__(0, 5),
    lambda v: v.__setitem__(0, 2),
)
P["struct"] = inplace(
    lambda b, x: x * struct.unpack("i", b.v)[0],
    lambda: bytearray(struct.pack("i", 2)),
    lambda v: v.__setitem__(0, 5),
    lambda v: v.__setitem__(0, 2),
)
P["deque"] = inplace(
    lambda b, x: x * b.v[0] * len(b.v), lambda: collections.deque([2]), lambda v: v.appendleft(5), lambda v: v.popleft()
)
P["counter"] = inplace(
    lambda b, x: x * b.v["a"] * b.v["q"] + sum(b.v.values()),
    lambda: collections.Counter("aab"),
    lambda v: v.update("ab"),
    lambda v: v.subtract("ab"),
)


@program
def itertools_kept():
    c = itertools.count()
    cy = itertools.cycle([1, 2])

    def fn(x):
        return x * next(c) + next(cy)

    return World(fn)


@program
def zip_kept():
    z = zip(range(100), range(100))

    def fn(x):
        for a, b in z:
            return x * a

    return World(fn)


@program
def tee_kept():
    a, b_ = itertools.tee(range(100))

    def fn(x):
        return x * next(a)

    return World(fn, lambda: next(b_))


@program
def reduce_outer():
    l = [1, 2]

    def fn(x):
        return x * functools.reduce(operator.add, l) * functools.reduce(lambda a, b: a * b, l, 2)

    return World(fn, lambda: l.append(5), lambda: l.pop())


@program
def partialmethod():
    class A:
        k = 2

        def m(self, a, b):
            return a * b * self.k

        n = functools.partialmethod(m, 3)

    a = A()

    def fn(x):
        return x * a.n(2)

    return World(fn, lambda: setattr(a, "k", 5), lambda: setattr(a, "k", 2))


@program
def singledispatch():
    @functools.singledispatch
    def g(a):
        return 2

    def fn(x):
        return x * g(1)

    def c():
        g.register(int, lambda a: 5)

    def b():
        g.register(int, lambda a: 2)

    return World(fn, c, b)


@program
def singledispatchmethod():
    class A:
        @functools.singledispatchmethod
        def g(self, a):
            return 2

    a = A()

    def fn(x):
        return x * a.g(1)

    def c():
        A.__dict__["g"].register(int, lambda s, a: 5)

    def b():
        A.__dict__["g"].register(int, lambda s, a: 2)

    return World(fn, c, b)


@program
def total_ordering():
    @functools.total_ordering
    class A:
        def __init__(self, k):
            self.k = k

        def __eq__(self, o):
            return self.k == o.k

        def __lt__(self, o):
            return self.k < o.k

    a, b_ = A(1), A(2)

    def fn(x):
        return x * (2 if a >= b_ else 3) * max([a, b_]).k

    return World(fn, lambda: setattr(a, "k", 5), lambda: setattr(a, "k", 1))


P["attrgetter"] = inplace(
    lambda b, x: x * operator.attrgetter("k.j")(b.v),
    lambda: Box(k=Box(j=2)),
    lambda v: setattr(v.k, "j", 5),
    lambda v: setattr(v.k, "j", 2),
)
P["itemgetter"] = inplace(
    lambda b, x: x * operator.itemgetter(0)(b.v),
    lambda: [2],
    lambda v: v.__setitem__(0, 5),
    lambda v: v.__setitem__(0, 2),
)
P["methodcaller"] = inplace(
    lambda b, x: x * operator.methodcaller("get", "k")(b.v),
    lambda: {"k": 2},
    lambda v: v.update(k=5),
    lambda v: v.update(k=2),
)
P["sorted_attrgetter"] = inplace(
    lambda b, x: x * sorted(b.v, key=operator.attrgetter("k"))[0].j,
    lambda: [Box(k=1, j=2), Box(k=3, j=4)],
    lambda v: setattr(v[0], "k", 9),
    lambda v: setattr(v[0], "k", 1),
)
P["sorted_dictget"] = inplace(
    lambda b, x: x * sorted([1, 2], key=b.v.get)[0],
    lambda: {1: 1, 2: 2},
    lambda v: v.update({1: 9}),
    lambda v: v.update({1: 1}),
)
P["sorted_partial"] = inplace(
    lambda b, x: x * sorted([1, 2], key=functools.partial(lambda d, k: d[k], b.v))[0],
    lambda: {1: 1, 2: 2},
    lambda v: v.update({1: 9}),
    lambda v: v.update({1: 1}),
)
P["cmp_to_key"] = inplace(
    lambda b, x: x * sorted([1, 2], key=functools.cmp_to_key(lambda p, q: b.v[p] - b.v[q]))[0],
    lambda: {1: 1, 2: 2},
    lambda v: v.update({1: 9}),
    lambda v: v.update({1: 1}),
)


class Num:
    def __init__(self):
        self.k = 2.5

    def __float__(self):
        return self.k

    def __trunc__(self):
        return int(self.k)

    def __ceil__(self):
        return int(self.k) + 1

    def __floor__(self):
        return int(self.k)

    def __round__(self, n=0):
        return self.k * 2

    def __abs__(self):
        return self.k

    def __divmod__(self, o):
        return (self.k, 1)

    def __pow__(self, o):
        return self.k

    def __complex__(self):
        return complex(self.k)


P["math_obj"] = inplace(
    lambda b, x: (
        x
        * math.sqrt(b.v)
        * math.ceil(b.v)
        * math.floor(b.v)
        * math.trunc(b.v)
        * round(b.v)
        * abs(b.v)
        * divmod(b.v, 1)[0]
        * b.v**2
        * int(b.v)
        * float(b.v)
    ),
    Num,
    lambda v: setattr(v, "k", 5.5),
    lambda v: setattr(v, "k", 2.5),
)
P["fraction"] = sw(
    lambda b, x: x * float(b.v) * b.v.numerator, lambda: fractions.Fraction(1, 2), lambda: fractions.Fraction(1, 3)
)
P["decimal"] = sw(lambda b, x: x * float(b.v), lambda: decimal.Decimal("1.5"), lambda: decimal.Decimal("2.5"))
P["datetime"] = sw(lambda b, x: x * b.v.year, lambda: datetime.date(2000, 1, 1), lambda: datetime.date(2001, 1, 1))
P["re"] = sw(lambda b, x: x * (2 if re.match(b.v, "abc") else 3), lambda: "a", lambda: "b")
P["re_match"] = sw(lambda b, x: x * len(b.v.group(0)), lambda: re.match("a+", "aaa"), lambda: re.match("a", "aaa"))


class Fmt:
    def __init__(self):
        self.k = "ab"

    def __format__(self, s):
        return self.k + s

    def __str__(self):
        return self.k

    def __repr__(self):
        return self.k


P["format_spec"] = inplace(
    lambda b, x: x * len(f"{b.v:z}") * len(format(b.v, "q")),
    Fmt,
    lambda v: setattr(v, "k", "abcd"),
    lambda v: setattr(v, "k", "ab"),
)
P["format_method"] = inplace(
    lambda b, x: x * len("{0.k}".format(b.v)) * len("%s" % b.v),
    Fmt,
    lambda v: setattr(v, "k", "abcd"),
    lambda v: setattr(v, "k", "ab"),
)


class Fmt2:
    def __init__(self):
        self.k = "ab"

    def __str__(self):
        return self.k

    def __repr__(self):
        return self.k


P["str_obj"] = inplace(
    lambda b, x: x * len(str(b.v)) * len(f"{b.v!r}") * len("%s" % b.v),
    Fmt2,
    lambda v: setattr(v, "k", "abcd"),
    lambda v: setattr(v, "k", "ab"),
)
P["string_template"] = inplace(
    lambda b, x: x * len(string.Template("$k").substitute(b.v)),
    lambda: {"k": "ab"},
    lambda v: v.update(k="abcd"),
    lambda v: v.update(k="ab"),
)
P["deepcopy"] = inplace(
    lambda b, x: x * copy.deepcopy(b.v)["a"][0].k,
    lambda: {"a": [Box(k=2)]},
    lambda v: setattr(v["a"][0], "k", 5),
    lambda v: setattr(v["a"][0], "k", 2),
)


class DC:
    def __init__(self):
        self.k = 2

    def __deepcopy__(self, m):
        return Box(k=self.k * 3)


P["deepcopy_hook"] = inplace(
    lambda b, x: x * copy.deepcopy(b.v).k, DC, lambda v: setattr(v, "k", 5), lambda v: setattr(v, "k", 2)
)


class RD:
    def __init__(self):
        self.k = 2

    def __reduce__(self):
        return (Box, (), {"k": self.k})


P["copy_reduce"] = inplace(
    lambda b, x: x * copy.copy(b.v).k, RD, lambda v: setattr(v, "k", 5), lambda v: setattr(v, "k", 2)
)
P["copy_slots"] = inplace(
    lambda b, x: x * copy.copy(b.v).a, lambda: slots(2), lambda v: setattr(v, "a", 5), lambda v: setattr(v, "a", 2)
)
P["copy_list"] = inplace(
    lambda b, x: x * copy.copy(b.v)[0], lambda: [2], lambda v: v.__setitem__(0, 5), lambda v: v.__setitem__(0, 2)
)
P["pickle"] = inplace(lambda b, x: x * len(pickle.dumps(b.v)), lambda: [2], lambda v: v.append(5), lambda v: v.pop())


@program
def setattr_elsewhere():
    d = {}

    class A:
        def __setattr__(self, n, v):
            d[n] = v

        def __getattr__(self, n):
            return d[n]

    a = A()

    def fn(x):
        a.k = 3
        return x * a.k

    return World(fn, lambda: d.clear(), seen=lambda: dict(d))


@program
def prop_setter():
    class A:
        _k = 2

        @property
        def k(self):
            return self._k

        @k.setter
        def k(self, v):
            self._k = v

    a = A()

    def fn(x):
        a.k = a.k + 1
        return x * a.k

    return World(fn, seen=lambda: a._k)


@program
def sort_mutable_keys():
    l = [Box(k=1, v=2), Box(k=1, v=3)]

    def fn(x):
        return x * sorted(l, key=lambda o: o.k)[0].v

    return World(fn, lambda: l.reverse(), lambda: l.reverse())


@program
def set_of_objects():
    a, b_ = Box(k=2), Box(k=5)
    s = {a, b_}

    def fn(x):
        return x * sum(o.k for o in s)

    return World(fn, lambda: s.discard(a), lambda: s.add(a))


@program
def set_attr_of_member():
    a = Box(k=2)
    s = {a}

    def fn(x):
        for o in s:
            x = x * o.k
        return x

    return World(fn, lambda: setattr(a, "k", 5), lambda: setattr(a, "k", 2))


@program
def bisect_heap():
    l = [1, 3]

    def fn(x):
        return x * bisect.bisect(l, 2) * heapq.nsmallest(1, l)[0]

    return World(fn, lambda: l.insert(0, 0.5), lambda: l.pop(0))


@program
def random_state():
    def fn(x):
        return x * random.random()

    return World(fn, lambda: random.seed(3), inputs=lambda t: (random.seed(t), torch.randn(3))[1:])


@program
def time_read():
    import time

    def fn(x):
        return x * (2 if time.time() > 0 else 3)

    return World(fn)


@program
def environ():
    import os

    os.environ["GUARDS_K"] = "2"

    def fn(x):
        return x * int(os.environ["GUARDS_K"]) * int(os.environ.get("GUARDS_Z", "3"))

    return World(fn, lambda: os.environ.__setitem__("GUARDS_K", "5"), lambda: os.environ.__setitem__("GUARDS_K", "2"))


@program
def setattr_type_same():
    class A:
        k = 2

    def fn(x):
        A.k = 2
        return x * A.k

    return World(fn, lambda: setattr(A, "k", 5), seen=lambda: A.k)


@program
def dict_store_back():
    d = {"k": "a", "z": 1}

    def fn(x):
        old = d["k"]
        d["k"] = "b"
        y = x * len(d["k"]) * d["z"]
        d["k"] = old
        return y

    return World(fn, lambda: d.update(z=5), lambda: d.update(z=1), seen=lambda: dict(d))


@program
def dataclass_frozen_field():
    @dataclasses.dataclass
    class D:
        a: int = 2
        l: list = dataclasses.field(default_factory=lambda: [1])

    d = D()

    def fn(x):
        return x * d.a * d.l[0] * (2 if d == D() else 3) * len(dataclasses.fields(d)) * dataclasses.replace(d, a=3).a

    return World(fn, lambda: d.l.__setitem__(0, 5), lambda: d.l.__setitem__(0, 1))


@program
def dataclass_asdict():
    @dataclasses.dataclass
    class D:
        a: int = 2
        l: list = dataclasses.field(default_factory=lambda: [1])

    d = D()

    def fn(x):
        return x * dataclasses.asdict(d)["l"][0]

    return World(fn, lambda: d.l.__setitem__(0, 5), lambda: d.l.__setitem__(0, 1))


@program
def abc_register():
    class A(abc.ABC):
        pass

    class B:
        pass

    b_ = B()

    def fn(x):
        return x * (2 if isinstance(b_, A) else 3)

    return World(fn, lambda: A.register(B))


@program
def protocol():
    @typing.runtime_checkable
    class Pr(typing.Protocol):
        def go(self): ...

    o = Box()

    def fn(x):
        return x * (2 if isinstance(o, Pr) else 3)

    return World(fn, lambda: setattr(o, "go", lambda: 1), lambda: delattr(o, "go"))


@program
def numbers_abc():
    box = Box(v=2)

    def fn(x):
        return x * (2 if isinstance(box.v, numbers.Number) else 3)

    return World(fn, lambda: setattr(box, "v", "s"), lambda: setattr(box, "v", 2))


@program
def hasattr_chain():
    o = Box()

    def fn(x):
        return x * (getattr(o, "k", 2)) * (3 if hasattr(o, "z") else 5)

    return World(fn, lambda: o.__dict__.update(k=7, z=1), lambda: o.__dict__.clear())


@program
def dict_swap():
    o = Box(k=2)

    def fn(x):
        return x * o.k

    def c():
        o.__dict__ = {"k": 5}

    def b():
        o.__dict__ = {"k": 2}

    return World(fn, c, b)


@program
def bases_swap():
    class A:
        k = 2

    class B:
        k = 5

    class M:
        pass

    class C(A, M):
        pass

    o = C()

    def fn(x):
        return x * o.k

    def c():
        C.__bases__ = (B, M)

    def b():
        C.__bases__ = (A, M)

    return World(fn, c, b)


@program
def super_patched():
    class A:
        def m(self):
            return 2

    class B(A):
        def m(self):
            return super().m() * 3

    o = B()
    m0 = A.m

    def fn(x):
        return x * o.m()

    def c():
        A.m = lambda s: 5

    def b():
        A.m = m0

    return World(fn, c, b)


@program
def super_prop_slot():
    class A:
        __slots__ = ("_k",)

        @property
        def k(self):
            return self._k

    class B(A):
        __slots__ = ()

        @property
        def k(self):
            return super().k * 2

    o = B()
    o._k = 2

    def fn(x):
        return x * o.k

    return World(fn, lambda: setattr(o, "_k", 5), lambda: setattr(o, "_k", 2))


@program
def getattribute_override():
    class A:
        def __init__(self):
            self.k = 2

        def __getattribute__(self, n):
            return object.__getattribute__(self, n)

    o = A()

    def fn(x):
        return x * o.k

    return World(fn, lambda: setattr(o, "k", 5), lambda: setattr(o, "k", 2))


@program
def eq_hash_key():
    class K:
        def __init__(self, v):
            self.v = v

        def __eq__(self, o):
            return self.v == o.v

        def __hash__(self):
            return 1

    a, b_ = K(1), K(2)
    d = {b_: 7}

    def fn(x):
        return x * d.get(a, 3)

    return World(fn, lambda: setattr(a, "v", 2), lambda: setattr(a, "v", 1))


@program
def eq_hash_set():
    class K:
        def __init__(self, v):
            self.v = v

        def __eq__(self, o):
            return self.v == o.v

        def __hash__(self):
            return 1

    a, b_ = K(1), K(2)
    s = {b_}

    def fn(x):
        return x * (2 if a in s else 3) * len({a, b_}) * (5 if a in [b_] else 7)

    return World(fn, lambda: setattr(a, "v", 2), lambda: setattr(a, "v", 1))


@program
def list_eq_nested():
    a, b_ = [[1], {"k": (2, [3])}], [[1], {"k": (2, [3])}]

    def fn(x):
        return x * (2 if a == b_ else 3)

    return World(fn, lambda: b_[1]["k"][1].append(1), lambda: b_[1]["k"][1].pop())


@program
def star_args():
    l, d = [1], {"k": 2}

    def g(x, *a, k=1, **kw):
        return x * sum(a) * k * (1 + len(kw))

    def fn(x):
        return g(x, *l, **d)

    return World(fn, lambda: (l.append(5), d.update(z=1)), lambda: (l.pop(), d.pop("z")))


@program
def global_write_read():
    g = globals()
    g["_GUARDS_GLOBAL"] = 2

    def fn(x):
        return x * _GUARDS_GLOBAL

    return World(fn, lambda: g.update(_GUARDS_GLOBAL=5), lambda: g.update(_GUARDS_GLOBAL=2))


@program
def builtin_shadow():
    g = globals()

    def fn(x):
        return x * len([1, 2])

    return World(fn, lambda: g.update(len=lambda v: 9), lambda: g.pop("len"))


# torch modules
def lin():
    m = nn.Linear(3, 3)
    with torch.no_grad():
        m.weight.copy_(torch.eye(3))
        m.bias.zero_()
    return m


@program
def forward_patched_instance():
    m = lin()

    def fn(x):
        return m(x)

    return World(fn, lambda: setattr(m, "forward", lambda x: x * 7), lambda: delattr(m, "forward"))


@program
def functional_patched():
    m = lin()
    f0 = F.linear

    def fn(x):
        return m(x)

    return World(fn, lambda: setattr(F, "linear", lambda i, w, b=None: i * 7), lambda: setattr(F, "linear", f0))


@program
def torch_patched():
    f0 = torch.relu

    def fn(x):
        return torch.relu(x)

    return World(fn, lambda: setattr(torch, "relu", lambda i: i * 7), lambda: setattr(torch, "relu", f0))


@program
def tensor_method_patched():
    f0 = torch.Tensor.relu

    def fn(x):
        return x.relu()

    def c():
        torch.Tensor.relu = lambda s: s * 7

    def b():
        del torch.Tensor.relu

    return World(fn, c, b)


def hooks(reg):
    def make():
        m = lin()
        h = []

        def fn(x):
            return m(x)

        return World(fn, lambda: h.append(reg(m)), lambda: h.pop().remove())

    return make


P["hook_fwd"] = hooks(lambda m: m.register_forward_hook(lambda m, i, o: o * 2))
P["hook_pre"] = hooks(lambda m: m.register_forward_pre_hook(lambda m, i: (i[0] * 2,)))
P["hook_kw"] = hooks(lambda m: m.register_forward_hook(lambda m, a, k, o: o * 2, with_kwargs=True))
P["hook_prepend"] = hooks(lambda m: m.register_forward_hook(lambda m, i, o: o * 2, prepend=True))
P["hook_always"] = hooks(lambda m: m.register_forward_hook(lambda m, i, o: o * 2, always_call=True))
P["hook_bwd"] = hooks(lambda m: m.register_full_backward_hook(lambda m, gi, go: None))
P["hook_global"] = hooks(lambda m: nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 2))
P["hook_global_pre"] = hooks(lambda m: nn.modules.module.register_module_forward_pre_hook(lambda m, i: (i[0] * 2,)))
P["hook_global_bwd"] = hooks(lambda m: nn.modules.module.register_module_full_backward_hook(lambda m, gi, go: None))


@program
def hook_state():
    m = lin()
    box = Box(k=2)
    m.register_forward_hook(lambda m, i, o: o * box.k)

    def fn(x):
        return m(x)

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def hook_order():
    m = lin()
    a = m.register_forward_hook(lambda m, i, o: o * 2)
    b_ = m.register_forward_hook(lambda m, i, o: o + 1)

    def fn(x):
        return m(x)

    return World(fn, lambda: m._forward_hooks.move_to_end(a.id), lambda: m._forward_hooks.move_to_end(b_.id))


@program
def parametrize():
    from torch.nn.utils import parametrize as pz

    m = lin()

    class S(nn.Module):
        k = 2

        def forward(self, w):
            return w * self.k

    s = S()

    def fn(x):
        return m(x)

    return World(
        fn,
        lambda: pz.register_parametrization(m, "weight", s),
        lambda: pz.remove_parametrizations(m, "weight", leave_parametrized=False),
    )


@program
def parametrize_state():
    from torch.nn.utils import parametrize as pz

    m = lin()

    class S(nn.Module):
        k = 2

        def forward(self, w):
            return w * self.k

    s = S()
    pz.register_parametrization(m, "weight", s)

    def fn(x):
        return m(x)

    return World(fn, lambda: setattr(s, "k", 5), lambda: setattr(s, "k", 2))


@program
def parametrize_cached():
    from torch.nn.utils import parametrize as pz

    m = lin()

    class S(nn.Module):
        k = 2

        def forward(self, w):
            return w * self.k

    s = S()
    pz.register_parametrization(m, "weight", s)

    def fn(x):
        with pz.cached():
            return m(m(x))

    return World(fn, lambda: setattr(s, "k", 5), lambda: setattr(s, "k", 2))


@program
def weight_norm():
    m = nn.utils.parametrizations.weight_norm(lin())

    def fn(x):
        return m(x)

    def c():
        with torch.no_grad():
            m.parametrizations.weight.original0.mul_(3)

    return World(fn, c)


@program
def spectral_norm():
    torch.manual_seed(0)
    m = nn.utils.parametrizations.spectral_norm(lin())

    def fn(x):
        return m(x)

    return World(fn, lambda: m.eval(), lambda: m.train(), seen=lambda: [b for b in m.buffers()])


@program
def pruning():
    from torch.nn.utils import prune

    m = lin()
    prune.identity(m, "weight")

    def fn(x):
        return m(x)

    def c():
        m.weight_mask[0] = 0

    def b():
        m.weight_mask[0] = 1

    return World(fn, c, b)


@program
def lazy():
    m = nn.LazyLinear(2)
    torch.manual_seed(0)

    def fn(x):
        return m(x).shape[0] * x

    return World(fn)


@program
def param_list():
    l = nn.ParameterList([torch.ones(3), torch.ones(3) * 2])

    def fn(x):
        return x * sum(p.sum() for p in l) * len(l)

    return World(fn, lambda: l.append(torch.ones(3) * 5), lambda: setattr(l, "_size", 2))


@program
def module_dict():
    d = nn.ModuleDict({"a": lin()})

    def fn(x):
        for k, m in d.items():
            x = m(x) * len(k)
        return x

    return World(fn, lambda: d.update({"bb": lin()}), lambda: d.pop("bb"))


@program
def module_list():
    l = nn.ModuleList([lin()])

    def fn(x):
        for m in l:
            x = m(x) + 1
        return x

    return World(fn, lambda: l.append(lin()), lambda: l.pop(-1))


@program
def seq_setitem():
    s = nn.Sequential(nn.ReLU(), nn.Tanh())

    def fn(x):
        return s(x)

    return World(fn, lambda: s.__setitem__(0, nn.Sigmoid()), lambda: s.__setitem__(0, nn.ReLU()))


@program
def buffer_re():
    m = nn.Module()
    m.register_buffer("b", torch.ones(3))

    def fn(x):
        return x * m.b

    return World(fn, lambda: m.register_buffer("b", torch.ones(3) * 5), lambda: m.register_buffer("b", torch.ones(3)))


@program
def opt_closure():
    m = lin()
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def fn(x):
        def closure():
            o.zero_grad()
            l = m(x).sum()
            l.backward()
            return l

        return o.step(closure).detach()

    def c():
        o.param_groups[0]["lr"] = 0.5

    def b():
        o.param_groups[0]["lr"] = 0.1

    return World(fn, c, b, seen=lambda: list(m.parameters()))


def opt(make, change=lambda o: o.param_groups[0].update(lr=0.5), back=lambda o: o.param_groups[0].update(lr=0.1)):
    def mk():
        m = lin()
        o = make(m.parameters())

        def fn(x):
            o.zero_grad()
            l = m(x).pow(2).sum()
            l.backward()
            o.step()
            return l.detach()

        return World(fn, lambda: change(o), lambda: back(o), seen=lambda: list(m.parameters()))

    return mk


P["sgd_mom"] = opt(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
P["adam"] = opt(lambda p: torch.optim.Adam(p, lr=0.1))
P["adamw_wd"] = opt(
    lambda p: torch.optim.AdamW(p, lr=0.1),
    lambda o: o.param_groups[0].update(weight_decay=0.5),
    lambda o: o.param_groups[0].update(weight_decay=0.01),
)
P["rmsprop"] = opt(lambda p: torch.optim.RMSprop(p, lr=0.1))
P["adam_state_cleared"] = opt(
    lambda p: torch.optim.Adam(p, lr=0.1), lambda o: o.state.clear(), lambda o: o.state.clear()
)
P["adam_load"] = opt(
    lambda p: torch.optim.Adam(p, lr=0.1),
    lambda o: o.load_state_dict(copy.deepcopy(o.state_dict())),
    lambda o: o.load_state_dict(copy.deepcopy(o.state_dict())),
)
P["opt_hook"] = opt(
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda o: o.register_step_pre_hook(lambda o, a, k: [p.grad.mul_(0) for g in o.param_groups for p in g["params"]]),
    lambda o: o._optimizer_step_pre_hooks.clear(),
)


@program
def sched_inside():
    m = lin()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    s = torch.optim.lr_scheduler.StepLR(o, 2)

    def fn(x):
        o.zero_grad()
        l = m(x).pow(2).sum()
        l.backward()
        o.step()
        s.step()
        return l.detach()

    return World(fn, seen=lambda: (list(m.parameters()), s.last_epoch))


@program
def sched_outside():
    m = lin()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    s = torch.optim.lr_scheduler.StepLR(o, 1)

    def fn(x):
        o.zero_grad()
        l = m(x).pow(2).sum()
        l.backward()
        o.step()
        return l.detach()

    return World(fn, s.step, s.step, seen=lambda: list(m.parameters()))


@program
def clip_norm():
    m = lin()
    box = Box(k=0.5)

    def fn(x):
        m.zero_grad()
        m(x).pow(2).sum().backward()
        n = nn.utils.clip_grad_norm_(m.parameters(), box.k)
        return n, [p.grad.clone() for p in m.parameters()]

    return World(fn, lambda: setattr(box, "k", 0.1), lambda: setattr(box, "k", 0.5))


@program
def accumulate():
    m = lin()
    box = Box(n=0)
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def fn(x):
        (m(x).pow(2).sum() / 2).backward()
        box.n += 1
        if box.n % 2 == 0:
            o.step()
            o.zero_grad()
        return x * 2

    return World(fn, seen=lambda: (list(m.parameters()), [p.grad for p in m.parameters()]))


@program
def accumulate_outside():
    m = lin()
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def fn(x):
        l = m(x).pow(2).sum() / 2
        l.backward()
        return l.detach()

    def c():
        o.step()
        o.zero_grad()

    return World(fn, c, c, seen=lambda: [p.grad for p in m.parameters()])


@program
def checkpointing():
    from torch.utils.checkpoint import checkpoint

    m = lin()

    def fn(x):
        m.zero_grad()
        l = checkpoint(m, x, use_reentrant=False).pow(2).sum()
        l.backward()
        return l.detach(), m.weight.grad.clone()

    return World(
        fn,
    )


@program
def ema():
    m = lin()
    a = torch.optim.swa_utils.AveragedModel(m)

    def fn(x):
        a.update_parameters(m)
        return a(x)

    def c():
        with torch.no_grad():
            m.weight.mul_(2)

    return World(fn, c, c, seen=lambda: list(a.buffers()))


@program
def functional_call():
    m = lin()
    p = {"weight": torch.eye(3) * 2, "bias": torch.zeros(3)}

    def fn(x):
        return torch.func.functional_call(m, p, (x,))

    return World(fn, lambda: p.update(weight=torch.eye(3) * 5), lambda: p.update(weight=torch.eye(3) * 2))


@program
def grad_scaler():
    s = torch.amp.GradScaler("cpu", init_scale=4.0)
    m = lin()
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def fn(x):
        o.zero_grad()
        l = m(x).pow(2).sum()
        s.scale(l).backward()
        s.step(o)
        s.update()
        return l.detach()

    return World(fn, lambda: s.update(2.0), seen=lambda: (list(m.parameters()), s.get_scale()))


@program
def subclass_tf():
    box = Box(k=2)

    class T(torch.Tensor):
        @classmethod
        def __torch_function__(cls, f, t, a=(), k=None):
            r = super().__torch_function__(f, t, a, k or {})
            return r * box.k if f is torch.Tensor.add else r

    w = torch.ones(3).as_subclass(T)

    def fn(x):
        return w.add(x).as_subclass(torch.Tensor)

    return World(fn, lambda: setattr(box, "k", 5), lambda: setattr(box, "k", 2))


@program
def dropout_p():
    m = nn.Dropout(0.5)

    def fn(x):
        return m(x)

    return World(fn, lambda: setattr(m, "p", 0.1), lambda: setattr(m, "p", 0.5))


@program
def bn_momentum():
    m = nn.BatchNorm1d(3)

    def fn(x):
        return m(x.repeat(4, 1) * torch.arange(4.0)[:, None])

    return World(
        fn, lambda: setattr(m, "momentum", 0.5), lambda: setattr(m, "momentum", 0.1), seen=lambda: list(m.buffers())
    )


@program
def bn_cumulative():
    m = nn.BatchNorm1d(3, momentum=None)

    def fn(x):
        return m(x.repeat(4, 1) * torch.arange(4.0)[:, None])

    return World(fn, lambda: m.eval(), lambda: m.train(), seen=lambda: list(m.buffers()))


@program
def training_flag():
    m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    with torch.no_grad():
        m[0].weight.copy_(torch.eye(3))
        m[0].bias.zero_()

    def fn(x):
        return m(x)

    return World(fn, lambda: m.eval(), lambda: m.train())


@program
def state_dict_inside():
    m = lin()

    def fn(x):
        return x @ m.state_dict()["weight"]

    return World(
        fn,
        lambda: setattr(m, "weight", nn.Parameter(torch.eye(3) * 5)),
        lambda: setattr(m, "weight", nn.Parameter(torch.eye(3))),
    )


@program
def named_params_inside():
    m = lin()

    def fn(x):
        return {n: p.sum().detach() * x for n, p in m.named_parameters()}

    return World(fn, lambda: m.register_parameter("z", nn.Parameter(torch.ones(2))), lambda: m._parameters.pop("z"))
