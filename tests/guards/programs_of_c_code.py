"""Programs in which C code of Python reads what a program holds.

Each is made by a function without arguments, and gives a `World`: see lockstep.py. They are as odd as programs can be.
"""

# ruff: noqa  (no linter would have them as they are)
# mypy: ignore-errors

import collections, contextlib, functools, itertools, operator, types, warnings, weakref, copy, math
import torch
from tests.guards.lockstep import World

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


class Box:
    def __init__(self, **kw):
        self.__dict__.update(kw)


def simple(get, a, b, **kw):
    """box.v = a, then b."""

    def make():
        box = Box(v=a())

        def fn(x):
            return get(box, x)

        return World(fn, lambda: setattr(box, "v", b()), lambda: setattr(box, "v", a()))

    return make


def inplace(get, make_v, change, back):
    def make():
        box = Box(v=make_v())

        def fn(x):
            return get(box, x)

        return World(fn, lambda: change(box.v), lambda: back(box.v))

    return make


P = PROGRAMS
push = lambda v: v.append(5)
pop = lambda v: v.pop()
P["any_gen_lists"] = inplace(
    lambda b, x: x * (2 if any(m for m in b.v) else 3),
    lambda: [[], []],
    lambda v: v[0].append(1),
    lambda v: v[0].clear(),
)
P["any_gen_attr"] = inplace(
    lambda b, x: x * (2 if any(m.items for m in b.v) else 3),
    lambda: [Box(items=[])],
    lambda v: v[0].items.append(1),
    lambda v: v[0].items.clear(),
)
P["any_map_attr"] = inplace(
    lambda b, x: x * (2 if any(map(lambda m: m.items, b.v)) else 3),
    lambda: [Box(items=[])],
    lambda v: v[0].items.append(1),
    lambda v: v[0].items.clear(),
)
P["sum_gen_lists"] = inplace(
    lambda b, x: x * len(sum((m.items for m in b.v), [])),
    lambda: [Box(items=[])],
    lambda v: v[0].items.append(1),
    lambda v: v[0].items.clear(),
)
P["any_iter"] = inplace(
    lambda b, x: x * (2 if any(iter(b.v)) else 3), lambda: [[], []], lambda v: v[0].append(1), lambda v: v[0].clear()
)
P["any_chain"] = inplace(
    lambda b, x: x * (2 if any(itertools.chain(b.v, b.v)) else 3),
    lambda: [[], []],
    lambda v: v[0].append(1),
    lambda v: v[0].clear(),
)
P["any_values"] = inplace(
    lambda b, x: x * (2 if any(b.v.values()) else 3), lambda: {1: []}, lambda v: v[1].append(1), lambda v: v[1].clear()
)
P["sorted_key_list"] = inplace(
    lambda b, x: x * sorted(b.v, key=lambda m: m.items)[0].k,
    lambda: [Box(items=[1], k=2), Box(items=[3], k=4)],
    lambda v: v[0].items.__setitem__(0, 9),
    lambda v: v[0].items.__setitem__(0, 1),
)
P["max_key_list"] = inplace(
    lambda b, x: x * max(b.v, key=lambda m: (m.items, 1)).k,
    lambda: [Box(items=[1], k=2), Box(items=[3], k=4)],
    lambda v: v[0].items.__setitem__(0, 9),
    lambda v: v[0].items.__setitem__(0, 1),
)
P["sort_key_list"] = inplace(
    lambda b, x: (lambda l: (l.sort(key=lambda m: m.items), x * l[0].k)[1])(list(b.v)),
    lambda: [Box(items=[1], k=2), Box(items=[3], k=4)],
    lambda v: v[0].items.__setitem__(0, 9),
    lambda v: v[0].items.__setitem__(0, 1),
)
P["from_iterable_gen"] = inplace(
    lambda b, x: x * sum(itertools.chain.from_iterable(m.items for m in b.v)),
    lambda: [Box(items=[1])],
    lambda v: v[0].items.append(7),
    lambda v: v[0].items.pop(),
)
P["from_iterable_map"] = inplace(
    lambda b, x: x * sum(itertools.chain.from_iterable(map(lambda m: m.items, b.v))),
    lambda: [Box(items=[1])],
    lambda v: v[0].items.append(7),
    lambda v: v[0].items.pop(),
)
P["from_iterable_values"] = inplace(
    lambda b, x: x * sum(itertools.chain.from_iterable(b.v.values())),
    lambda: {1: [1]},
    lambda v: v[1].append(7),
    lambda v: v[1].pop(),
)
P["dict_gen_pairs"] = inplace(
    lambda b, x: x * dict(m for m in b.v)["a"],
    lambda: [["a", 2]],
    lambda v: v[0].__setitem__(1, 7),
    lambda v: v[0].__setitem__(1, 2),
)
P["dict_update_pairs"] = inplace(
    lambda b, x: (lambda d: (d.update(b.v), x * d["a"])[1])({}),
    lambda: [["a", 2]],
    lambda v: v[0].__setitem__(1, 7),
    lambda v: v[0].__setitem__(1, 2),
)


class SubDict(dict):
    pass


P["subdict_pairs"] = inplace(
    lambda b, x: x * SubDict(b.v)["a"],
    lambda: [["a", 2]],
    lambda v: v[0].__setitem__(1, 7),
    lambda v: v[0].__setitem__(1, 2),
)
P["filter_none"] = inplace(
    lambda b, x: x * len(list(filter(None, b.v))), lambda: [[], []], lambda v: v[0].append(1), lambda v: v[0].clear()
)
P["filter_truth"] = inplace(
    lambda b, x: x * len(list(filter(lambda m: m.items, b.v))),
    lambda: [Box(items=[])],
    lambda v: v[0].items.append(1),
    lambda v: v[0].items.clear(),
)
P["takewhile_truth"] = inplace(
    lambda b, x: x * len(list(itertools.takewhile(lambda m: m.items, b.v))),
    lambda: [Box(items=[])],
    lambda v: v[0].items.append(1),
    lambda v: v[0].items.clear(),
)
P["starmap_lists"] = inplace(
    lambda b, x: x * sum(itertools.starmap(lambda p, q: p * q, b.v)),
    lambda: [[2, 3]],
    lambda v: v[0].__setitem__(1, 7),
    lambda v: v[0].__setitem__(1, 3),
)
P["slice_store"] = inplace(
    lambda b, x: slice_store(b, x), lambda: [2, 3], lambda v: v.__setitem__(1, 7), lambda v: v.__setitem__(1, 3)
)


def slice_store(b, x):
    l = [1]
    l[:] = b.v
    return x * sum(l)


Pt = collections.namedtuple("Pt", "a b")
P["namedtuple_make"] = inplace(
    lambda b, x: x * Pt._make(b.v).b, lambda: [2, 3], lambda v: v.__setitem__(1, 7), lambda v: v.__setitem__(1, 3)
)


class TupInit(tuple):
    def __init__(self, it):
        pass


P["tuple_init"] = inplace(
    lambda b, x: x * TupInit(b.v)[1], lambda: [2, 3], lambda v: v.__setitem__(1, 7), lambda v: v.__setitem__(1, 3)
)


class TupNew(tuple):
    def __new__(cls, it):
        return super().__new__(cls, it)


P["tuple_new"] = inplace(
    lambda b, x: x * TupNew(b.v)[1], lambda: [2, 3], lambda v: v.__setitem__(1, 7), lambda v: v.__setitem__(1, 3)
)


class F2(float):
    def __new__(cls, v):
        return super().__new__(cls, v)


class HasFloat:
    def __init__(self, v):
        self.v = v

    def __float__(self):
        return float(self.v)

    def __index__(self):
        return int(self.v)


P["float_new"] = inplace(
    lambda b, x: x * float(F2(b.v)), lambda: HasFloat(2), lambda v: setattr(v, "v", 5), lambda v: setattr(v, "v", 2)
)


class DotDict(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


P["dotdict_read"] = inplace(
    lambda b, x: x * b.v.k, lambda: DotDict(k=2), lambda v: setattr(v, "k", 3), lambda v: setattr(v, "k", 2)
)


@program
def dotdict_write():
    d = DotDict(k=2)

    def fn(x):
        d.n = 3
        return x * 2

    return World(fn, lambda: d.pop("n", 0), seen=lambda: dict(d))


class DotDict2(dict):
    def __getattr__(self, k):
        return self[k]

    def __setattr__(self, k, v):
        self[k] = v


P["dotdict2_read"] = inplace(
    lambda b, x: x * b.v.k, lambda: DotDict2(k=2), lambda v: setattr(v, "k", 3), lambda v: setattr(v, "k", 2)
)


class LIter(list):
    def __iter__(self):
        return iter([1, 2])


P["list_iter_override_item"] = inplace(
    lambda b, x: x * b.v[0], lambda: LIter([2, 3]), lambda v: v.__setitem__(0, 7), lambda v: v.__setitem__(0, 2)
)
P["list_iter_override_add"] = inplace(
    lambda b, x: x * ([] + b.v)[0], lambda: LIter([2, 3]), lambda v: v.__setitem__(0, 7), lambda v: v.__setitem__(0, 2)
)


class DIter(dict):
    def __iter__(self):
        return iter(["a"])


P["dict_iter_override"] = inplace(
    lambda b, x: x * sum({**b.v}.values()), lambda: DIter(a=2, b=1), lambda v: v.update(b=7), lambda v: v.update(b=1)
)


class Keys:
    def __init__(self):
        self.k = ["a"]
        self.d = {"a": 2, "b": 3}

    def keys(self):
        return self.k

    def __getitem__(self, k):
        return self.d[k]


P["keys_list"] = inplace(lambda b, x: x * sum({**b.v}.values()), Keys, lambda v: v.k.append("b"), lambda v: v.k.pop())
P["keys_list_dict"] = inplace(
    lambda b, x: x * sum(dict(b.v).values()), Keys, lambda v: v.k.append("b"), lambda v: v.k.pop()
)


class Persist:
    def __init__(self):
        self.it = iter(range(1, 1000))

    def __iter__(self):
        return self.it


P["persist_zip"] = inplace(lambda b, x: x * list(zip(b.v, [1, 2]))[0][0], Persist, lambda v: next(v.it), lambda v: None)
P["persist_star"] = inplace(
    lambda b, x: x * [a for a, _ in zip(b.v, [1])][0], Persist, lambda v: next(v.it), lambda v: None
)


class Cont:
    def __init__(self):
        self.l = []

    def __contains__(self, k):
        return self.l

    def __iter__(self):
        return iter(())


P["contains_list"] = inplace(
    lambda b, x: x * (2 if 1 in b.v else 3), Cont, lambda v: v.l.append(1), lambda v: v.l.clear()
)


class Eq:
    def __init__(self, l):
        self.l = l

    def __eq__(self, o):
        return self.l

    __hash__ = None


P["eq_list_in"] = inplace(
    lambda b, x: x * (2 if 1 in b.v else 3), lambda: [Eq([])], lambda v: v[0].l.append(1), lambda v: v[0].l.clear()
)


@program
def cls_name():
    class A:
        pass

    def fn(x):
        return x * len(A.__name__)

    def c():
        A.__name__ = "Longer"

    def b():
        A.__name__ = "A"

    return World(fn, c, b)


@program
def cls_qualname_repr():
    class A:
        pass

    def fn(x):
        return x * len(f"{A}")

    def c():
        A.__qualname__ = "Longer"

    def b():
        A.__qualname__ = "A"

    return World(fn, c, b)


@program
def metaclass_set():
    class M(type):
        k = 2

    class N(type):
        k = 3

    class A(metaclass=M):
        pass

    def fn(x):
        return x * A.k

    def c():
        A.__class__ = N

    def b():
        A.__class__ = M

    return World(fn, c, b)


@program
def callable_class():
    class A:
        pass

    class B:
        def __call__(self):
            pass

    o = A()

    def fn(x):
        return x * (2 if callable(o) else 3)

    def c():
        o.__class__ = B

    def b():
        o.__class__ = A

    return World(fn, c, b)


@program
def frozenset_address():
    box = Box(v=frozenset(["a", "b"]))

    def fn(x):
        return x * (2 if "a" in box.v else 3)

    def c():
        box.v = None
        box.v = frozenset(["c", "b"])

    def b():
        box.v = None
        box.v = frozenset(["a", "b"])

    return World(fn, c, b)


@program
def frozenset_address_iter():
    box = Box(v=(frozenset([1]), 2))

    def fn(x):
        return x * sum(box.v[0])

    def c():
        box.v = None
        box.v = (frozenset([5]), 2)

    def b():
        box.v = None
        box.v = (frozenset([1]), 2)

    return World(fn, c, b)


P["range_stop"] = simple(lambda b, x: x * b.v.stop, lambda: range(0, 3, 2), lambda: range(0, 4, 2))


@program
def is_plain_identity():
    s = "".join(["a", "b", "c"])
    box = Box(a=s, b=s)

    def fn(x):
        return x * (2 if box.a is box.b else 3)

    def c():
        box.a = "".join(["a", "b", "c"])

    def b():
        box.a = s

    return World(fn, c, b)


@program
def given_lists_identity():
    def fn(a, b):
        return a[0] * (2 if a is b else 3)

    def inputs(t):
        x = torch.randn(3)
        l = [x]
        return (l, l) if t % 3 else ([x], [x])

    return World(fn, inputs=inputs)


@program
def lru_refill():
    box = Box(k=2)

    @functools.lru_cache
    def g(n):
        return n * box.k

    def fn(x):
        return x * g(1)

    def c():
        box.k = 5
        g.cache_clear()
        g(1)

    def b():
        box.k = 2
        g.cache_clear()
        g(1)

    return World(fn, c, b)


class SlotA:
    __slots__ = ("k", "__weakref__")


class SlotB(SlotA):
    __slots__ = ()

    def get(self):
        return super().k


def _slotb():
    s = SlotB()
    s.k = 2
    return s


P["super_slot"] = inplace(
    lambda b, x: x * b.v.get(), _slotb, lambda v: setattr(v, "k", 5), lambda v: setattr(v, "k", 2)
)


@program
def module_getattr():
    m = types.ModuleType("m")
    m.__getattr__ = lambda n: 2
    g = lambda n: 5
    g0 = m.__getattr__

    def fn(x):
        return x * m.foo

    def c():
        m.__getattr__ = g

    def b():
        m.__getattr__ = g0

    return World(fn, c, b)


@program
def raise_outer():
    e = ValueError("a")

    def depth():
        n, t = 0, e.__traceback__
        while t is not None:
            n, t = n + 1, t.tb_next
        return n

    def fn(x):
        try:
            raise e
        except ValueError:
            pass
        return x * 2

    return World(fn, seen=lambda: e.__traceback__ is None)


@program
def raise_outer_cleared():
    e = ValueError("a")

    def fn(x):
        try:
            raise e
        except ValueError:
            pass
        return x * 2

    def seen():
        r = e.__traceback__ is None
        e.__traceback__ = None
        return r

    return World(fn, seen=seen)


@program
def add_note():
    e = ValueError("a")

    def fn(x):
        e.add_note("n")
        return x * 2

    return World(fn, seen=lambda: list(getattr(e, "__notes__", [])))


@program
def fmt_super():
    class A(list):
        def __format__(self, spec):
            return object.__format__(self, spec)

    a = A([1])

    def fn(x):
        return x * len(format(a, ""))

    return World(fn, lambda: a.append(100), lambda: a.pop())


@program
def fmt_super2():
    class A(list):
        def text(self):
            return object.__format__(self, "")

    a = A([1])

    def fn(x):
        return x * len(a.text())

    return World(fn, lambda: a.append(100), lambda: a.pop())


@program
def ns_repr():
    l = [1]

    def fn(x):
        return x * len(types.SimpleNamespace(a=l).__repr__())

    return World(fn, lambda: l.append(100), lambda: l.pop())


P["sorted_set_fresh"] = inplace(
    lambda b, x: sorted({x * 1, x * 2, x * 3, x * 4}, key=lambda t: 0)[0],
    lambda: [],
    lambda v: v.append(bytes(100)),
    lambda v: v.append([torch.randn(3) for _ in range(3)]),
)


@program
def map_bound_c():
    cfg = Box(a=2)
    m = types.MethodType(getattr, cfg)

    def fn(x):
        return x * sum(map(m, ["a"]))

    return World(fn, lambda: setattr(cfg, "a", 5), lambda: setattr(cfg, "a", 2))


@program
def prop_c_setter():
    class A(list):
        v = property(None, list.append)

    a = A()

    def fn(x):
        a.v = 5
        return x * 2

    return World(fn, seen=lambda: list(a))


@program
def import_from_fallback():
    import sys

    p = types.ModuleType("guards_package")
    sys.modules["guards_package"] = p
    p.__name__ = "guards_package"
    s = types.ModuleType("guards_package.sub")
    s.k = 2
    t = types.ModuleType("guards_package.sub")
    t.k = 5
    sys.modules["guards_package.sub"] = s

    def fn(x):
        from guards_package import sub

        return x * sub.k

    return World(
        fn,
        lambda: sys.modules.__setitem__("guards_package.sub", t),
        lambda: sys.modules.__setitem__("guards_package.sub", s),
    )


@program
def operator_mod():
    l = [1]

    def fn(x):
        return x * len(operator.mod("%s", (l,)))

    return World(fn, lambda: l.append(100), lambda: l.pop())


@program
def operator_mod_obj():
    class A:
        def __init__(self):
            self.l = [1]

        def __repr__(self):
            return repr(self.l)

    a = A()

    def fn(x):
        return x * len(operator.mod("%s", a))

    return World(fn, lambda: a.l.append(100), lambda: a.l.pop())


@program
def isinstance_nested():
    class M(type):
        pass

    class A(metaclass=M):
        pass

    o = Box()

    def fn(x):
        return x * (2 if isinstance(o, (int, (str, A))) else 3)

    def c():
        M.__instancecheck__ = lambda c, o: True

    def b():
        del M.__instancecheck__

    return World(fn, c, b)


@program
def special_c_len():
    class A:
        def __init__(self):
            self.l = [1]

    class B(list):
        __bool__ = None

    class C(list):
        __call__ = list.__len__

    c = C([1])

    def fn(x):
        return x * c()

    return World(fn, lambda: c.append(3), lambda: c.pop())


@program
def special_c_enter():
    class C(list):
        __enter__ = list.__len__

        def __exit__(self, *a):
            pass

    c = C([1])

    def fn(x):
        with c as n:
            return x * n

    return World(fn, lambda: c.append(3), lambda: c.pop())


@program
def special_c_index():
    class C(list):
        __index__ = list.__len__

    c = C([1])

    def fn(x):
        return x * [5, 6, 7, 8][c]

    return World(fn, lambda: c.append(3), lambda: c.pop())


@program
def special_c_neg():
    class C(dict):
        __neg__ = dict.__len__
        __add__ = dict.get

    c = C(a=2)

    def fn(x):
        return x * (-c) * (c + "a")

    return World(fn, lambda: c.update(a=3), lambda: c.update(a=2))


@program
def special_c_getitem():
    class C:
        d = {"a": 2}
        __getitem__ = d.get

    c = C()

    def fn(x):
        return x * c["a"]

    return World(fn, lambda: C.d.update(a=3), lambda: C.d.update(a=2))


@program
def special_c_partial():
    d = {"a": 2}

    class C:
        __call__ = functools.partial(d.get, "a")

    c = C()

    def fn(x):
        return x * c()

    return World(fn, lambda: d.update(a=3), lambda: d.update(a=2))


@program
def descriptor_c_get():
    d = {"a": 2}

    class D:
        __get__ = staticmethod(lambda o, t: 2)

    class C:
        v = D()

    c = C()

    def fn(x):
        return x * c.v

    return World(fn)


@program
def descriptor_c_get2():
    class D(dict):
        def __hash__(self):
            return 1

        __get__ = dict.get

    class C:
        v = D()

    c = C()
    C.v0 = None
    C.__dict__["v"][c] = 2

    def fn(x):
        return x * c.v

    return World(fn, lambda: C.__dict__["v"].update({c: 3}), lambda: C.__dict__["v"].update({c: 2}))


@program
def sum_list_params_grad():
    a, b = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    l = [a, b]

    def fn(x):
        return sum(l)

    def c():
        a.requires_grad_(False)
        b.requires_grad_(False)

    def k():
        a.requires_grad_(True)
        b.requires_grad_(True)

    return World(fn, c, k)


@program
def sum_gen_params_grad():
    a, b = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    l = [a, b]

    def fn(x):
        return sum(p for p in l)

    def c():
        a.requires_grad_(False)
        b.requires_grad_(False)

    def k():
        a.requires_grad_(True)
        b.requires_grad_(True)

    return World(fn, c, k)
