"""Programs in which objects are handed to C code, to torch or back to themselves.

Each is made by a function without arguments, and gives a `World`: see lockstep.py. They are as odd as programs can be.
"""

# ruff: noqa  (no linter would have them as they are)
# mypy: ignore-errors

import collections, contextlib, functools, itertools, operator, types, weakref, copy, math, enum, sys
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


def inplace(get, make_v, change, back):
    def make():
        box = Box(v=make_v())

        def fn(x):
            return get(box, x)

        return World(fn, lambda: change(box.v), lambda: back(box.v))

    return make


ap = lambda v: v.append(9)
pp = lambda v: v.pop()
# C consumers in opcodes
P["list_extend_map"] = inplace(lambda b, x: x * len([*map(lambda m: m, b.v)]), lambda: [1], ap, pp)
P["unpack_inner"] = inplace(
    lambda b, x: x * sum(a for (a, *_) in b.v),
    lambda: [[1, 2]],
    lambda v: v[0].__setitem__(0, 5),
    lambda v: v[0].__setitem__(0, 1),
)
P["dictcomp_nested"] = inplace(
    lambda b, x: x * sum({k: v for k, v in b.v}.values()),
    lambda: [["a", 1]],
    lambda v: v[0].__setitem__(1, 5),
    lambda v: v[0].__setitem__(1, 1),
)
P["dict_of_zip"] = inplace(
    lambda b, x: x * sum(dict(zip("ab", b.v)).values()),
    lambda: [1, 2],
    lambda v: v.__setitem__(1, 5),
    lambda v: v.__setitem__(1, 2),
)
P["dict_of_items"] = inplace(
    lambda b, x: x * sum(dict(b.v.items()).values()), lambda: {"a": 1}, lambda v: v.update(a=5), lambda v: v.update(a=1)
)
P["dict_of_list_iter"] = inplace(
    lambda b, x: x * sum(dict(iter(b.v)).values()),
    lambda: [["a", 1]],
    lambda v: v[0].__setitem__(1, 5),
    lambda v: v[0].__setitem__(1, 1),
)
P["dict_of_filter"] = inplace(
    lambda b, x: x * sum(dict(filter(lambda p: True, b.v)).values()),
    lambda: [["a", 1]],
    lambda v: v[0].__setitem__(1, 5),
    lambda v: v[0].__setitem__(1, 1),
)
P["any_reversed"] = inplace(
    lambda b, x: x * (2 if any(reversed(b.v)) else 3),
    lambda: [[], []],
    lambda v: v[0].append(1),
    lambda v: v[0].clear(),
)
P["any_islice"] = inplace(
    lambda b, x: x * (2 if any(itertools.islice(b.v, 1)) else 3),
    lambda: [[], []],
    lambda v: v[0].append(1),
    lambda v: v[0].clear(),
)
P["any_filter"] = inplace(
    lambda b, x: x * (2 if any(filter(lambda m: True, b.v)) else 3),
    lambda: [[], []],
    lambda v: v[0].append(1),
    lambda v: v[0].clear(),
)
P["any_zip"] = inplace(
    lambda b, x: x * (2 if max(zip(b.v, [1]))[0] else 3),
    lambda: [[], []],
    lambda v: v[0].append(1),
    lambda v: v[0].clear(),
)
P["max_enum"] = inplace(
    lambda b, x: x * max(enumerate(b.v), key=lambda p: p[1])[0],
    lambda: [[1], [2]],
    lambda v: v[0].append(1) or v[0].__setitem__(0, 7),
    lambda v: v.__setitem__(0, [1]),
)
P["sum_chain_gen"] = inplace(
    lambda b, x: x * len(sum(itertools.chain((m for m in b.v), [[1]]), [])),
    lambda: [[1], [2]],
    lambda v: v[0].append(1),
    lambda v: v[0].pop(),
)
P["all_dictkeys_iter"] = inplace(
    lambda b, x: x * (2 if all(iter(b.v)) else 3), lambda: {1: 1}, lambda v: v.update({0: 1}), lambda v: v.pop(0)
)
P["all_set_iter"] = inplace(
    lambda b, x: x * (2 if all(iter(b.v)) else 3), lambda: {1}, lambda v: v.add(0), lambda v: v.discard(0)
)


class It:
    def __init__(self):
        self.l = [[1], [2]]

    def __iter__(self):
        self2 = copy.copy(self)
        self2.i = 0
        return self2

    def __next__(self):
        if self.i >= len(self.l):
            raise StopIteration
        self.i += 1
        return self.l[self.i - 1]


P["max_pyiter"] = inplace(
    lambda b, x: x * max(b.v)[0], It, lambda v: v.l[0].__setitem__(0, 7), lambda v: v.l[0].__setitem__(0, 1)
)
P["sum_pyiter"] = inplace(lambda b, x: x * len(sum(b.v, [])), It, lambda v: v.l[0].append(7), lambda v: v.l[0].pop())


class GetItem:
    def __init__(self):
        self.l = [[], [1]]

    def __getitem__(self, i):
        return self.l[i]


P["any_getitem"] = inplace(
    lambda b, x: x * (2 if all(b.v) else 3), GetItem, lambda v: v.l[0].append(1), lambda v: v.l[0].clear()
)
P["list_getitem"] = inplace(
    lambda b, x: x * len(list(b.v)) * len(tuple(b.v)[0]), GetItem, lambda v: v.l[0].append(1), lambda v: v.l[0].clear()
)


class Cmp:
    def __init__(self, l):
        self.l = l

    def __lt__(self, o):
        return self.l


P["lt_list"] = inplace(
    lambda b, x: x * (2 if sorted(b.v)[0] is b.v[0] else 3),
    lambda: [Cmp([]), Cmp([])],
    lambda v: v[1].l.append(1),
    lambda v: v[1].l.clear(),
)


class AddL:
    def __init__(self):
        self.l = [1]

    def __radd__(self, o):
        return o + self.l


P["radd_sum"] = inplace(lambda b, x: x * len(sum([b.v], [])), AddL, lambda v: v.l.append(1), lambda v: v.l.pop())


class HashL:
    def __init__(self):
        self.k = 1

    def __hash__(self):
        return self.k

    def __eq__(self, o):
        return True


P["hash_eq_set"] = inplace(
    lambda b, x: x * len({b.v, HashL()}), HashL, lambda v: setattr(v, "k", 2), lambda v: setattr(v, "k", 1)
)
P["hash_fn"] = inplace(lambda b, x: x * hash(b.v), HashL, lambda v: setattr(v, "k", 2), lambda v: setattr(v, "k", 1))
P["dict_fresh_hash"] = inplace(
    lambda b, x: x * len({b.v: 1, HashL(): 2}), HashL, lambda v: setattr(v, "k", 2), lambda v: setattr(v, "k", 1)
)


# calls of objects
class Called:
    def __init__(self):
        self.k = 2

    def __call__(self, v=1):
        return v * self.k


P["map_called"] = inplace(
    lambda b, x: x * sum(map(b.v, [1, 2])), Called, lambda v: setattr(v, "k", 5), lambda v: setattr(v, "k", 2)
)
P["sorted_called"] = inplace(
    lambda b, x: x * sorted([1, 2], key=b.v)[0], Called, lambda v: setattr(v, "k", -5), lambda v: setattr(v, "k", 2)
)
P["sub_called"] = inplace(lambda b, x: x * b.v(), Called, lambda v: setattr(v, "k", 5), lambda v: setattr(v, "k", 2))
P["default_called"] = inplace(
    lambda b, x: x * collections.defaultdict(b.v)["z"],
    Called,
    lambda v: setattr(v, "k", 5),
    lambda v: setattr(v, "k", 2),
)
P["iter_sentinel"] = inplace(
    lambda b, x: x * next(iter(b.v, 99)), Called, lambda v: setattr(v, "k", 5), lambda v: setattr(v, "k", 2)
)


@program
def property_partial():
    d = {"k": 2}

    class A:
        k = property(functools.partial(lambda d, s: d["k"], d))

    a = A()

    def fn(x):
        return x * a.k

    return World(fn, lambda: d.update(k=5), lambda: d.update(k=2))


@program
def property_callable_obj():
    c = Called()

    class A:
        k = property(lambda s: c())

    a = A()

    def fn(x):
        return x * a.k

    return World(fn, lambda: setattr(c, "k", 5), lambda: setattr(c, "k", 2))


@program
def classmethod_prop():
    class A:
        n = 2

        @classmethod
        def k(cls):
            return cls.n

        @staticmethod
        def s():
            return A.n

    def fn(x):
        return x * A.k() * A().s()

    return World(fn, lambda: setattr(A, "n", 5), lambda: setattr(A, "n", 2))


@program
def static_c():
    l = [1]

    class A:
        f = staticmethod(len)
        g = len
        h = l.__len__

    a = A()

    def fn(x):
        return x * a.f(l) * a.g(l) * a.h()

    return World(fn, lambda: l.append(1), lambda: l.pop())


@program
def bound_c_stored():
    d = {"k": 2}
    box = Box(g=d.get, p=functools.partial(d.get, "k"))

    def fn(x):
        return x * box.g("k") * box.p()

    return World(fn, lambda: d.update(k=5), lambda: d.update(k=2))


@program
def bound_append_stored():
    l = []
    push = l.append

    def fn(x):
        push(1)
        return x * 2

    return World(fn, seen=lambda: len(l))


@program
def setitem_stored():
    d = {}
    put = d.__setitem__

    def fn(x):
        put("k", 1)
        return x * 2

    return World(fn, d.clear, d.clear, seen=lambda: dict(d))


@program
def operator_setitem():
    d = {}

    def fn(x):
        operator.setitem(d, "k", 1)
        return x * 2

    return World(fn, d.clear, d.clear, seen=lambda: dict(d))


@program
def operator_iadd():
    d = []

    def fn(x):
        operator.iadd(d, [1])
        return x * 2

    return World(fn, d.clear, d.clear, seen=lambda: list(d))


@program
def fresh_holds_outer_iter():
    it = iter(range(1000))

    def fn(x):
        f = [it]
        return x * next(f[0])

    return World(fn)


@program
def fresh_zip_of_pyiter():
    class N:
        n = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.n += 1
            return self.n

    n = N()

    def fn(x):
        return x * [a for a, _ in zip(n, [1])][0]

    return World(fn, seen=lambda: n.n)


@program
def list_of_pyiter():
    class N:
        def __init__(self):
            self.l = [1, 2]

        def __iter__(self):
            return self.l.__iter__()

    n = N()

    def fn(x):
        return x * sum(list(n)) * sum(n) * max(n)

    return World(fn, lambda: n.l.append(7), lambda: n.l.pop())


@program
def torch_seq_obj():
    class S:
        def __init__(self):
            self.l = [1.0, 2.0, 3.0]

        def __len__(self):
            return len(self.l)

        def __getitem__(self, i):
            return self.l[i]

    s = S()

    def fn(x):
        return x * torch.tensor(s)

    return World(fn, lambda: s.l.__setitem__(0, 7.0), lambda: s.l.__setitem__(0, 1.0))


@program
def torch_tensor_list_of_obj():
    class Fl:
        def __init__(self):
            self.k = 2.0

        def __float__(self):
            return self.k

        def __index__(self):
            return int(self.k)

    f = Fl()
    l = [f]

    def fn(x):
        return x * torch.zeros(f).numel()

    return World(fn, lambda: setattr(f, "k", 5.0), lambda: setattr(f, "k", 2.0))


@program
def size_obj_list():
    class I:
        def __init__(self):
            self.k = 3

        def __index__(self):
            return self.k

    i = I()
    l = [i, 1]

    def fn(x):
        return x.sum() * torch.ones(l)

    return World(fn, lambda: setattr(i, "k", 2), lambda: setattr(i, "k", 3))


@program
def index_list_nested():
    l = [0, 1]

    def fn(x):
        return x[l] * 2, x[[l]]

    return World(fn, lambda: l.reverse(), lambda: l.reverse())


@program
def index_tuple_slice_obj():
    class I:
        def __init__(self):
            self.k = 1

        def __index__(self):
            return self.k

    i = I()

    def fn(x):
        return x[i:] * 2

    return World(fn, lambda: setattr(i, "k", 2), lambda: setattr(i, "k", 1))


@program
def kwargs_list_torch():
    d = {"dim": 0, "keepdim": True}

    def fn(x):
        return torch.sum(x, **d)

    return World(fn, lambda: d.update(keepdim=False), lambda: d.update(keepdim=True))


@program
def einsum_list():
    l = ["i,i->i"]

    def fn(x):
        return torch.einsum(l[0], x, x)

    return World(fn, lambda: l.__setitem__(0, "i,i->"), lambda: l.__setitem__(0, "i,i->i"))


@program
def pad_sizes():
    l = [1, 1]

    def fn(x):
        return F.pad(x, l)

    return World(fn, lambda: l.__setitem__(0, 2), lambda: l.__setitem__(0, 1))


@program
def setitem_tensor_outer_list():
    l = [0]

    def fn(x):
        y = x.clone()
        y[l] = 5.0
        return y

    return World(fn, lambda: l.append(2), lambda: l.pop())


@program
def getattr_dyn_name():
    o = Box(a=2, b=3)
    n = ["a"]

    def fn(x):
        return x * getattr(o, n[0])

    return World(fn, lambda: n.__setitem__(0, "b"), lambda: n.__setitem__(0, "a"))


@program
def instance_getattr_func():
    class A:
        def __getattr__(self, n):
            try:
                return self.__dict__["z_" + n]
            except KeyError:
                raise AttributeError(n)

    a = A()
    a.z_k = 2

    def fn(x):
        return x * getattr(a, "k", 7)

    return World(fn, lambda: a.__dict__.pop("z_k"), lambda: setattr(a, "z_k", 2))


@program
def fresh_subclass_dict_attr():
    class D(dict):
        pass

    l = [1]

    def fn(x):
        d = D(a=l)
        d.k = l
        return x * len(d["a"]) * len(d.k)

    return World(fn, lambda: l.append(1), lambda: l.pop())


@program
def fresh_then_outer_alias():
    l = [1]

    def fn(x):
        f = [l]
        g = f[0]
        return x * len(g) * sum(*f)

    return World(fn, lambda: l.append(3), lambda: l.pop())


@program
def fresh_dict_pop_outer():
    l = [1]

    def fn(x):
        f = {"a": l}
        return x * sum(f.pop("a"))

    return World(fn, lambda: l.append(3), lambda: l.pop())


@program
def fresh_setdefault_outer_write():
    l = [1]

    def fn(x):
        f = {}
        f.setdefault("a", l).append(1)
        return x * len(l)

    return World(fn, seen=lambda: len(l))


@program
def fresh_default_dict_outer():
    l = [1]

    def fn(x):
        f = collections.defaultdict(lambda: l)
        f["z"].append(2)
        return x * len(l)

    return World(fn, seen=lambda: len(l))


@program
def copy_context_run():
    import contextvars

    v = contextvars.ContextVar("v", default=2)

    def fn(x):
        return x * contextvars.copy_context().run(v.get)

    return World(fn, lambda: v.set(5), lambda: v.set(2))


@program
def lru_args():
    box = Box(k=2)

    @functools.lru_cache(maxsize=1)
    def g(n):
        return n * box.k

    def fn(x):
        return x * g(1)

    def c():
        box.k = 5
        g(2)
        g(1)

    def b():
        box.k = 2
        g(2)
        g(1)

    return World(fn, c, b)


@program
def lru_kw_list():
    l = [2]

    @functools.lru_cache
    def g(n, k=1):
        return l

    def fn(x):
        return x * g(1, k=2)[0]

    return World(fn, lambda: l.__setitem__(0, 5), lambda: l.__setitem__(0, 2))


@program
def cached_property():
    class A:
        def __init__(self):
            self.n = 2

        @functools.cached_property
        def k(self):
            return self.n

    a = A()

    def fn(x):
        return x * a.k

    def c():
        a.n = 5
        a.__dict__.pop("k", None)

    def b():
        a.n = 2
        a.__dict__.pop("k", None)

    return World(fn, c, b, seen=lambda: sorted(a.__dict__))


@program
def closure_tensor_swap():
    w = torch.ones(3)

    def fn(x):
        return x * w

    def c():
        nonlocal w
        w = torch.ones(3) * 5

    def b():
        nonlocal w
        w = torch.ones(3)

    return World(fn, c, b)


@program
def arg_object_attr():
    a = Box(k=2)

    def fn(x, o):
        return x * o.k

    return World(fn, lambda: setattr(a, "k", 5), lambda: setattr(a, "k", 2), inputs=lambda t: (torch.randn(3), a))


@program
def arg_set():
    s = {1, 2}

    def fn(x, o):
        return x * sum(o)

    return World(fn, lambda: s.add(5), lambda: s.discard(5), inputs=lambda t: (torch.randn(3), s))


@program
def arg_frozenset():
    def fn(x, o):
        return x * sum(o)

    return World(fn, inputs=lambda t: (torch.randn(3), frozenset([t])))


@program
def arg_range():
    def fn(x, o):
        return x * sum(o)

    return World(fn, inputs=lambda t: (torch.randn(3), range(t)))


@program
def arg_nested_obj():
    a = Box(k=2)

    def fn(x, o):
        return x * o[0]["a"].k

    return World(
        fn, lambda: setattr(a, "k", 5), lambda: setattr(a, "k", 2), inputs=lambda t: (torch.randn(3), [{"a": a}])
    )


@program
def arg_dict_contains_tensor_key():
    def fn(x, o):
        return x * len(o)

    return World(fn, inputs=lambda t: (torch.randn(3), {t % 2: 1}))


@program
def arg_mutated():
    def fn(x, o):
        o.append(1)
        return x * len(o)

    l = []
    return World(fn, inputs=lambda t: (torch.randn(3), [1]))


@program
def arg_dict_update():
    def fn(x, o):
        o["y"] = x * 2
        return x

    return World(fn, inputs=lambda t: (torch.randn(3), {"a": 1}))


@program
def arg_identity_dict_self():
    box = Box(l=[1])

    def fn(x, o):
        return x * (2 if o is box.l else 3)

    return World(fn, inputs=lambda t: (torch.randn(3), box.l if t % 3 == 0 else [1]))


@program
def arg_eq_self():
    box = Box(l=[1])

    def fn(x, o):
        return x * (2 if o == box.l else 3)

    return World(fn, lambda: box.l.append(2), lambda: box.l.pop(), inputs=lambda t: (torch.randn(3), [1]))


@program
def arg_in_self():
    box = Box(l=[[1]])

    def fn(x, o):
        return x * (2 if o in box.l else 3)

    return World(fn, lambda: box.l[0].append(2), lambda: box.l[0].pop(), inputs=lambda t: (torch.randn(3), [1]))


@program
def same_tensor_twice():
    def fn(x, y):
        return x * (2 if x is y else 3)

    def inputs(t):
        x = torch.randn(3)
        return (x, x) if t % 3 else (x, x.view(3))

    return World(fn, inputs=inputs)


@program
def index_tensor_in_list():
    w = torch.ones(1)
    l = [w]

    def fn(x):
        return x * (2 if any(x is t for t in l) else 3)

    return World(fn, inputs=lambda t: (w if t % 3 == 0 else torch.ones(1),))


@program
def count_tensor():
    w = torch.full((1,), float("nan"))
    l = [w]

    def fn(x):
        return x * l.count(x)

    return World(fn, inputs=lambda t: (w if t % 3 == 0 else torch.full((1,), float("nan")),))


@program
def dict_by_tensor():
    w = torch.ones(1)
    d = {w: 2}

    def fn(x):
        return x * d.get(x, 3)

    return World(fn, inputs=lambda t: (w if t % 3 == 0 else torch.ones(1),))
