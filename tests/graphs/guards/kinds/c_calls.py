"""What C reads for Python: functions, methods and types that look into objects, and callbacks that they are given.

Each program multiplies by a number that such a call makes of state, and the state changes.
"""

# How each is written is what is tested.
# ruff: noqa: RUF015, RUF017, UP030, UP031, UP032

from __future__ import annotations

import array
import bisect
import collections
import copy
import datetime
import decimal
import functools
import hashlib
import heapq
import inspect
import itertools
import json
import math
import operator
import pickle
import re
import statistics
import string
import struct
import textwrap
import zlib
from collections.abc import Callable
from typing import Any

import numpy
import torch

from tests.graphs.guards.kinds.registry import Box, attribute, enter, item, kind
from tests.graphs.guards.lockstep import Change

Tensor = torch.Tensor


class Number:
    """Has every special method by which C asks for a number."""

    def __init__(self, k: float) -> None:
        self.k = k

    def __float__(self) -> float:
        return float(self.k)

    def __int__(self) -> int:
        return int(self.k)

    __index__ = __trunc__ = __floor__ = __ceil__ = __int__

    def __complex__(self) -> complex:
        return complex(self.k)

    def __abs__(self) -> float:
        return abs(self.k)

    def __round__(self, digits: int = 0) -> float:
        return round(self.k)

    def __bool__(self) -> bool:
        return self.k > 3

    def __len__(self) -> int:
        return int(self.k)

    def __length_hint__(self) -> int:
        return int(self.k)

    def __hash__(self) -> int:
        return int(self.k)

    def __eq__(self, other: object) -> bool:
        return self.k == other

    def __lt__(self, other: Any) -> bool:
        return self.k < float(other)

    def __gt__(self, other: Any) -> bool:
        return self.k > float(other)

    def __add__(self, other: Any) -> Any:
        return self.k + other

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return self.k * other

    __rmul__ = __matmul__ = __mul__

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.k, other)

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        return self.k**other

    def __getitem__(self, place: Any) -> float:
        if isinstance(place, int) and place > 2:
            raise IndexError(place)
        return self.k

    def __contains__(self, value: Any) -> bool:
        return value < self.k

    def __reversed__(self) -> Any:
        return iter([self.k, 1.0])

    def __format__(self, spec: str) -> str:
        return format(self.k, spec)

    def __str__(self) -> str:
        return str(self.k)

    __repr__ = __str__

    def __bytes__(self) -> bytes:
        return bytes([int(self.k)])

    def __dir__(self) -> list[str]:
        return ["k"] * int(self.k)

    def __call__(self, *args: Any) -> float:
        return self.k

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return numpy.array([self.k])


class State:
    """What the calls look into."""

    def __init__(self) -> None:
        self.numbers = [2.0, 1.0, 3.0]
        self.pairs = [[1.0, 2.0], [3.0, 4.0]]
        self.table = {"k": 1.0, "j": 2.0}
        self.box = Box(k=1.0, inner=Box(k=1.0))
        self.boxes = [Box(k=2.0), Box(k=1.0)]
        self.words = ["a", "b"]
        self.number = Number(2.0)
        self.buffer = bytearray(b"\1\2\3\4\5\6\7\x08")
        self.array = numpy.array([2.0, 1.0, 3.0])
        self.text = Box(of="a1 b2")


_CHANGES: dict[str, Callable[[State], Change]] = {
    "numbers": lambda s: item(s.numbers, 0, 9.0),
    "pairs": lambda s: item(s.pairs[1], 0, 9.0),
    "table": lambda s: item(s.table, "k", 9.0),
    "box": lambda s: attribute(s.box, "k", 9.0),
    "inner": lambda s: attribute(s.box.inner, "k", 9.0),
    "boxes": lambda s: attribute(s.boxes[1], "k", 9.0),
    "words": lambda s: item(s.words, 0, "zz"),
    "number": lambda s: attribute(s.number, "k", 5.0),
    "buffer": lambda s: item(s.buffer, 0, 9),
    "array": lambda s: item(s.array, 0, 9.0),
    "text": lambda s: attribute(s.text, "of", "c3 d4 e5"),
}
Call = Callable[[State], Any]

_OF_NUMBERS: dict[str, Call] = {
    "sum": lambda s: sum(s.numbers),
    "sum with a start by keyword": lambda s: sum(s.numbers, start=2.0),
    "max": lambda s: max(s.numbers),
    "max with a default": lambda s: max(s.numbers, default=0),
    "min of arguments": lambda s: min(*s.numbers[:1], 4.0),
    "sorted": lambda s: sorted(s.numbers)[-1],
    "sorted in reverse": lambda s: sorted(s.numbers, reverse=True)[0],
    "sorted by neg": lambda s: sorted(s.numbers, key=operator.neg)[0],
    "tuple": lambda s: tuple(s.numbers)[0],
    "set": lambda s: sum(set(s.numbers)),
    "list": lambda s: list(s.numbers)[0],
    "list.copy": lambda s: s.numbers.copy()[0],
    "list.__getitem__": lambda s: list.__getitem__(s.numbers, 0),
    "list.index": lambda s: s.numbers.index(1.0) + s.numbers.count(2.0),
    "list.__add__": lambda s: (s.numbers + [1.0])[0],
    "list.__mul__": lambda s: sum(s.numbers * 2),
    "list == list": lambda s: 2.0 if s.numbers == [2.0, 1.0, 3.0] else 3.0,
    "list < list": lambda s: 2.0 if s.numbers < [3.0] else 3.0,
    "extended fresh list": lambda s: _extended(s.numbers),
    "iter and next": lambda s: next(iter(s.numbers)),
    "reversed": lambda s: list(reversed(s.numbers))[-1],
    "enumerate by keywords": lambda s: sum(k * v for k, v in enumerate(iterable=s.numbers, start=1)),
    "zip strictly": lambda s: sum(a * b for a, b in zip(s.numbers, s.pairs[0] + [1.0], strict=True)),
    "map of a C function": lambda s: sum(map(math.sqrt, s.numbers)),
    "filter of None": lambda s: sum(filter(None, s.numbers)),
    "any of map": lambda s: 2.0 if any(map((9.0).__eq__, s.numbers)) else 3.0,
    "all": lambda s: 2.0 if all(k < 5 for k in s.numbers) else 3.0,
    "repr of a list": lambda s: len(repr(s.numbers)) + sum(map(ord, repr(s.numbers))),
    "str of a tuple with a list": lambda s: sum(map(ord, str((1, s.numbers)))),
    "f-string of a list": lambda s: sum(map(ord, f"{s.numbers}")),
    "% of a list": lambda s: sum(map(ord, "%s" % s.numbers)),
    "print-like join": lambda s: sum(map(ord, ",".join(map(str, s.numbers)))),
    "math.fsum": lambda s: math.fsum(s.numbers),
    "math.prod": lambda s: math.prod(s.numbers, start=2.0),
    "math.hypot": lambda s: math.hypot(*s.numbers),
    "math.dist": lambda s: math.dist(s.numbers, (1.0, 1.0, 1.0)),
    "statistics.mean": lambda s: statistics.mean(s.numbers),
    "functools.reduce": lambda s: functools.reduce(operator.sub, s.numbers, 10.0),
    "itemgetter": lambda s: operator.itemgetter(0)(s.numbers),
    "itemgetter of many": lambda s: operator.itemgetter(1, 0)(s.numbers)[1],
    "itemgetter of a slice": lambda s: sum(operator.itemgetter(slice(0, 2))(s.numbers)),
    "operator.getitem": lambda s: operator.getitem(s.numbers, 0),
    "operator.concat": lambda s: operator.concat(s.numbers, [1.0])[0],
    "operator.contains": lambda s: 2.0 if operator.contains(s.numbers, 9.0) else 3.0,
    "operator.countOf": lambda s: 1.0 + operator.countOf(s.numbers, 9.0),
    "operator.indexOf": lambda s: 1.0 + operator.indexOf(s.numbers + [9.0], 9.0),
    "operator.eq": lambda s: 2.0 if operator.eq(s.numbers, [2.0, 1.0, 3.0]) else 3.0,
    "methodcaller": lambda s: 1.0 + operator.methodcaller("count", 9.0)(s.numbers),
    "itertools.chain": lambda s: next(itertools.chain(s.numbers, [1.0])),
    "itertools.accumulate": lambda s: list(itertools.accumulate(s.numbers, operator.mul, initial=2.0))[-1],
    "itertools.islice": lambda s: sum(itertools.islice(s.numbers, 0, 2)),
    "itertools.compress": lambda s: sum(itertools.compress(s.numbers, [1, 0, 0])),
    "itertools.product": lambda s: sum(a * b for a, b in itertools.product(s.numbers, repeat=2)),
    "itertools.pairwise": lambda s: sum(a - b for a, b in itertools.pairwise(s.numbers)),
    "itertools.tee": lambda s: sum(itertools.tee(s.numbers)[1]),
    "itertools.zip_longest": lambda s: sum(a * b for a, b in itertools.zip_longest(s.numbers, [1.0], fillvalue=2.0)),
    "itertools.takewhile": lambda s: 1 + len(list(itertools.takewhile(lambda k: k < 5, s.numbers))),
    "itertools.filterfalse": lambda s: sum(itertools.filterfalse(lambda k: k > 5, s.numbers)),
    "itertools.combinations": lambda s: sum(a * b for a, b in itertools.combinations(s.numbers, 2)),
    "itertools.groupby": lambda s: sum(k for k, _ in itertools.groupby(s.numbers)),
    "collections.Counter": lambda s: sum(collections.Counter(s.numbers)),
    "collections.deque of a list": lambda s: collections.deque(s.numbers, maxlen=3)[0],
    "dict.fromkeys": lambda s: sum(dict.fromkeys(s.numbers)),
    "array of a list": lambda s: array.array("d", s.numbers)[0],
    "numpy of a list": lambda s: float(numpy.asarray(s.numbers).mean()),
    "torch.tensor of a list": lambda s: torch.tensor(s.numbers)[0],
    "torch.as_tensor of a list by keyword": lambda s: torch.as_tensor(data=s.numbers).sum(),
    "new_tensor of a list": lambda s: torch.ones(1).new_tensor(s.numbers).sum(),
    "copy.copy": lambda s: copy.copy(s.numbers)[0],
    "copy.deepcopy": lambda s: copy.deepcopy(s.numbers)[0],
    "pickle": lambda s: pickle.loads(pickle.dumps(s.numbers))[0],
    "json": lambda s: json.loads(json.dumps(s.numbers))[0],
    "heapq.nsmallest": lambda s: heapq.nsmallest(1, s.numbers)[0] + heapq.nlargest(1, s.numbers)[0],
    "bisect": lambda s: 1.0 + bisect.bisect(s.numbers[:1], 3.0),
    "star in a call": lambda s: (lambda a, *rest: a + len(rest))(*s.numbers),
    "star in a list": lambda s: [0.0, *s.numbers][1],
    "unpacking": lambda s: _unpacked(s.numbers),
    "assert of a list": lambda s: 2.0 if s.numbers[0] is not None and s.numbers[0] < 5 else 3.0,
    "slice read by an attribute": lambda s: s.numbers[slice(0, 1)][0],
    "sorted by a C method of a list": lambda s: sorted([0, 2], key=s.numbers.__getitem__)[0] + 1.0,
    "max by a C method of a list": lambda s: 1.0 + max(range(3), key=s.numbers.__getitem__),
    "divmod of map": lambda s: sum(map(operator.truediv, s.numbers, [1.0, 2.0, 4.0])),
    "starmap": lambda s: sum(itertools.starmap(operator.mul, [(s.numbers[0], 2.0)])),
    "type and isinstance": lambda s: s.numbers[0] if isinstance(s.numbers[0], float | int) else 0.0,
}


def _extended(numbers: Any) -> float:
    made: list[float] = []
    made.extend(numbers)
    made += numbers
    made[1:1] = numbers
    return sum(k * v for k, v in enumerate(made))


def _unpacked(numbers: Any) -> float:
    a, *_, c = numbers
    return float(a - c)


_OF_TABLES: dict[str, Call] = {
    "dict.get": lambda s: s.table.get("k"),
    "dict.get of the type": lambda s: dict.get(s.table, "k"),
    "dict.values": lambda s: sum(s.table.values()),
    "dict.items": lambda s: sum(v for _, v in s.table.items()),
    "dict.copy": lambda s: s.table.copy()["k"],
    "dict(...)": lambda s: dict(s.table)["k"],
    "dict(**...)": lambda s: dict(**s.table)["k"],
    "{**...}": lambda s: {**s.table}["k"],
    "dict |": lambda s: (s.table | {"z": 1.0})["k"],
    "dict == dict": lambda s: 2.0 if s.table == {"k": 1.0, "j": 2.0} else 3.0,
    "fresh.update": lambda s: _updated(s.table)["k"],
    "fresh.update by keywords": lambda s: _updated_by_keywords(s.table)["k"],
    "setdefault of a key that is there": lambda s: s.table.setdefault("k", 7.0),
    "ordered dict of a dict": lambda s: collections.OrderedDict(s.table)["k"],
    "counter of a dict": lambda s: collections.Counter(s.table).total(),
    "map of dict.get": lambda s: sum(map(s.table.get, ["k", "j"])),
    "sorted by dict.get": lambda s: 1.0 if sorted(s.table, key=s.table.get)[0] == "k" else 2.0,
    "max by dict.get": lambda s: 1.0 if max(s.table, key=s.table.get) == "k" else 2.0,
    "str.format with an item": lambda s: float("{0[k]}".format(s.table)),
    "str.format by keywords": lambda s: float("{k}".format(**s.table)),
    "str.format_map": lambda s: float("{k}".format_map(s.table)),
    "% of a dict": lambda s: float("%(k)s" % s.table),
    "string.Template": lambda s: float(string.Template("$k").substitute(s.table)),
    "repr of a dict": lambda s: sum(map(ord, repr(s.table))),
    "eval in a dict": lambda s: eval("k + j", dict(s.table)),
    "exec in a dict": lambda s: _executed(s.table),
    "itemgetter of a dict": lambda s: operator.itemgetter("k")(s.table),
    "dict views & and |": lambda s: sum(v for _, v in sorted(s.table.items() | {("z", 1.0)})),
    "min of values by keyword": lambda s: min(s.table.values(), key=operator.neg),
    "json.dumps of a dict": lambda s: json.loads(json.dumps(s.table, sort_keys=True))["k"],
    "vars of a made object": lambda s: Box(**s.table).k,
    "match of a mapping": lambda s: _matched(s.table),
}


def _updated(table: Any) -> Any:
    made: dict[str, float] = {}
    made.update(table)
    return made


def _updated_by_keywords(table: Any) -> Any:
    made: dict[str, float] = {}
    made.update(**table)
    return made


def _executed(table: Any) -> float:
    space = dict(table)
    exec("made = k * 2", space)
    return float(space["made"])


def _matched(table: Any) -> float:
    match table:
        case {"k": 1.0}:
            return 2.0
        case {"k": found}:
            return float(found)
    return 0.0


_OF_BOXES: dict[str, Call] = {
    "getattr": lambda s: getattr(s.box, "k"),  # noqa: B009
    "getattr by a computed name": lambda s: getattr(s.box, "k" + ""),
    "getattr with a default": lambda s: getattr(s.box, "k", 3.0),
    "vars": lambda s: vars(s.box)["k"],
    "__dict__": lambda s: s.box.__dict__["k"],
    "object.__getattribute__": lambda s: object.__getattribute__(s.box, "k"),
    "attrgetter": lambda s: operator.attrgetter("k")(s.box),
    "str.format with an attribute": lambda s: float("{0.k}".format(s.box)),
    "str.format with an attribute by keyword": lambda s: float("{b.k:.2f}".format(b=s.box)),
    "f-string with an attribute": lambda s: float(f"{s.box.k:.3f}"),
    "string.Formatter": lambda s: float(string.Formatter().format("{b.k}", b=s.box)),
    "map of getattr": lambda s: sum(map(getattr, [s.box], ["k"])),
    "copy.copy of an object": lambda s: copy.copy(s.box).k,
    "inspect.getattr_static": lambda s: inspect.getattr_static(s.box, "k"),
    "hasattr and getattr": lambda s: s.box.k if hasattr(s.box, "k") else 0.0,
    "partial of getattr": lambda s: functools.partial(getattr, s.box)("k"),
}
_OF_INNER: dict[str, Call] = {
    "attrgetter of a path": lambda s: operator.attrgetter("inner.k")(s.box),
    "attrgetter of many": lambda s: sum(operator.attrgetter("k", "inner.k")(s.box)),
    "str.format of a path": lambda s: float("{0.inner.k}".format(s.box)),
    "copy.deepcopy of an object": lambda s: copy.deepcopy(s.box).inner.k,
    "pickle of an object": lambda s: pickle.loads(pickle.dumps(s.box)).inner.k,
}
_OF_MANY_BOXES: dict[str, Call] = {
    "sorted by attrgetter": lambda s: sorted(s.boxes, key=operator.attrgetter("k"))[0].k,
    "sorted by a lambda": lambda s: s.boxes.index(sorted(s.boxes, key=lambda box: box.k)[0]) + 1.0,
    "max by attrgetter": lambda s: 1.0 + s.boxes.index(max(s.boxes, key=operator.attrgetter("k"))),
    "min by a lambda": lambda s: 1.0 + s.boxes.index(min(s.boxes, key=lambda box: box.k)),
    "map of attrgetter": lambda s: sum(map(operator.attrgetter("k"), s.boxes)),
    "sum of a generator": lambda s: sum(box.k for box in s.boxes),
    "any of a generator": lambda s: 2.0 if any(box.k > 5 for box in s.boxes) else 3.0,
    "fresh.sort": lambda s: _sorted_fresh(s.boxes),
    "cmp_to_key": lambda s: sorted(s.boxes, key=functools.cmp_to_key(lambda a, b: a.k - b.k))[0].k,
    "groupby by attrgetter": lambda s: sum(k for k, _ in itertools.groupby(s.boxes, key=operator.attrgetter("k"))),
    "bisect by a key": lambda s: 1.0 + bisect.bisect(s.boxes, 5.0, key=operator.attrgetter("k")),
    "heapq.nlargest by a key": lambda s: heapq.nlargest(1, s.boxes, key=lambda box: box.k)[0].k,
    "reduce by a lambda": lambda s: functools.reduce(lambda a, box: a - box.k, s.boxes, 1.0),
    "accumulate by a lambda": lambda s: list(itertools.accumulate(s.boxes, lambda a, b: a + b.k, initial=0.0))[-1],
    "dropwhile": lambda s: 1 + len(list(itertools.dropwhile(lambda box: box.k < 5, s.boxes))),
    "filter by attrgetter": lambda s: 1.0 + len(list(filter(lambda box: box.k > 5, s.boxes))),
    "comprehension with a condition": lambda s: sum([box.k for box in s.boxes if box.k < 5]),
    "dict comprehension": lambda s: sum({place: box.k for place, box in enumerate(s.boxes)}.values()),
    "zip of objects and numbers": lambda s: sum(box.k * n for box, n in zip(s.boxes, s.numbers, strict=False)),
}


def _sorted_fresh(boxes: Any) -> float:
    made = list(boxes)
    made.sort(key=operator.attrgetter("k"), reverse=True)
    return float(made[0].k)


_OF_PAIRS: dict[str, Call] = {
    "chain.from_iterable": lambda s: sum(itertools.chain.from_iterable(s.pairs)),
    "zip of a star": lambda s: next(zip(*s.pairs, strict=True))[1],
    "sum of lists": lambda s: sum(sum(s.pairs, [])),
    "max of lists": lambda s: max(s.pairs)[0],
    "sorted by itemgetter": lambda s: sorted(s.pairs, key=operator.itemgetter(0))[-1][0],
    "dict of pairs": lambda s: sum(dict(s.pairs)),
    "starmap of pairs": lambda s: sum(itertools.starmap(operator.mul, s.pairs)),
    "nested comprehension": lambda s: sum(k for pair in s.pairs for k in pair),
    "map of sum": lambda s: sum(map(sum, s.pairs)),
    "torch.tensor of lists": lambda s: torch.tensor(s.pairs).sum(),
    "numpy of lists": lambda s: float(numpy.array(s.pairs).sum()),
    "list == list of lists": lambda s: 2.0 if s.pairs == [[1.0, 2.0], [3.0, 4.0]] else 3.0,
    "in a list of lists": lambda s: 2.0 if [3.0, 4.0] in s.pairs else 3.0,
    "repr of lists": lambda s: sum(map(ord, repr(s.pairs))),
    "index of a list": lambda s: 1.0 + (s.pairs + [[3.0, 4.0]]).index([3.0, 4.0]),
    "copy.deepcopy of lists": lambda s: copy.deepcopy(s.pairs)[1][0],
}
_OF_A_NUMBER: dict[str, Call] = {
    "float()": lambda s: float(s.number),
    "int()": lambda s: int(s.number),
    "complex()": lambda s: complex(s.number).real,
    "bool()": lambda s: 2.0 if bool(s.number) else 3.0,
    "not": lambda s: 2.0 if not s.number else 3.0,
    "len()": lambda s: len(s.number),
    "abs()": lambda s: abs(s.number),
    "round()": lambda s: round(s.number),
    "divmod()": lambda s: divmod(s.number, 2)[0] + 1,
    "pow()": lambda s: pow(s.number, 2),
    "hash()": lambda s: hash(s.number),
    "format()": lambda s: float(format(s.number, ".1f")),
    "str()": lambda s: float(str(s.number)),
    "repr() in a list": lambda s: float(repr([s.number])[1:-1]),
    "f-string": lambda s: float(f"{s.number:.2f}"),
    "bytes()": lambda s: bytes(s.number)[0],
    "dir()": lambda s: len(dir(s.number)),
    "range()": lambda s: len(range(s.number)),
    "a slice": lambda s: len([1, 2, 3, 4, 5, 6][: s.number]),
    "an index": lambda s: [1, 2, 3, 4, 5, 6][s.number],
    "repetition": lambda s: len([1] * operator.index(s.number)),
    "math.floor": lambda s: math.floor(s.number) + math.ceil(s.number) + math.trunc(s.number),
    "math.sqrt": lambda s: math.sqrt(s.number),
    "math.gcd": lambda s: math.gcd(s.number, 10),
    "operator.length_hint": lambda s: operator.length_hint(s.number),
    "operator.truth": lambda s: 2.0 if operator.truth(s.number) else 3.0,
    "operator.index": lambda s: operator.index(s.number),
    "operator.matmul": lambda s: operator.matmul(s.number, 2.0),
    "sum of numbers of a class": lambda s: sum([s.number, 1.0]),
    "max of numbers of a class": lambda s: float(max([s.number, 3.0])),
    "sorted numbers of a class": lambda s: float(sorted([s.number, 3.0])[0]),
    "in a list of objects": lambda s: 2.0 if 2.0 in [s.number] else 3.0,
    "in a tuple of objects": lambda s: 2.0 if 2.0 in (s.number,) else 3.0,
    "key of a dict": lambda s: {2.0: 3.0, 5.0: 4.0}[s.number],
    "member of a set": lambda s: 2.0 if s.number in {2.0} else 3.0,
    "list.count": lambda s: 1.0 + [s.number, s.number].count(2.0),
    "list.index": lambda s: 1.0 + [s.number, 2.0].index(2.0),
    "tuple == tuple": lambda s: 2.0 if (1, s.number) == (1, 2.0) else 3.0,
    "list < list of objects": lambda s: 2.0 if [s.number] < [3.0] else 3.0,
    "dict == dict of objects": lambda s: 2.0 if {"a": s.number} == {"a": 2.0} else 3.0,
    "any of objects": lambda s: 2.0 if any([s.number]) else 3.0,
    "filter of None of objects": lambda s: 1.0 + len(list(filter(None, [s.number]))),
    "reversed()": lambda s: next(reversed(s.number)),
    "iteration by __getitem__": lambda s: sum(s.number),
    "map of an object that is called": lambda s: sum(map(s.number, [1, 2])),
    "sorted by an object that is called": lambda s: sorted([1.0, 2.0], key=s.number)[0] * s.number.k,
    "in an object": lambda s: 2.0 if 4.0 in s.number else 3.0,
    "print-like join of objects": lambda s: float("".join(map(str, [s.number]))),
    "% of an object": lambda s: float("%s" % s.number),
    "str.format of an object": lambda s: float("{:.1f}".format(s.number)),
    "numpy of an object": lambda s: float(numpy.asarray(s.number)[0]),
    "torch.full with a size of a class": lambda s: torch.full((s.number,), 2.0).sum(),
    "torch.tensor of an object": lambda s: torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])[s.number],
    "torch.mul by a number of a class": lambda s: torch.ones(3) * float(s.number),
    "torch.arange": lambda s: torch.arange(int(s.number)).sum() + 1,
    "statistics.fmean": lambda s: statistics.fmean([s.number, 1.0]),
    "datetime of a number": lambda s: datetime.timedelta(seconds=float(s.number)).total_seconds(),
    "isinstance by Number": lambda s: 2.0 + s.number.k if isinstance(s.number, collections.abc.Hashable) else 0.0,
}
_OF_BUFFERS: dict[str, Call] = {
    "bytes of a bytearray": lambda s: bytes(s.buffer)[0],
    "int.from_bytes": lambda s: int.from_bytes(s.buffer[:2], "little"),
    "struct.unpack": lambda s: struct.unpack("<hhhh", s.buffer)[0],
    "struct.unpack_from": lambda s: struct.unpack_from("<h", s.buffer, 0)[0],
    "memoryview of a bytearray": lambda s: memoryview(s.buffer)[0],
    "zlib.crc32": lambda s: zlib.crc32(s.buffer) % 97,
    "hashlib": lambda s: hashlib.sha256(s.buffer).digest()[0],
    "bytearray.hex": lambda s: int(s.buffer.hex()[:2], 16),
    "bytearray.find": lambda s: 2.0 + s.buffer.find(b"\1"),
    "bytearray in": lambda s: 2.0 if 9 in s.buffer else 3.0,
    "bytearray ==": lambda s: 2.0 if s.buffer[:2] == b"\1\2" else 3.0,
    "sum of a bytearray": lambda s: sum(s.buffer),
    "bytearray.decode": lambda s: ord(s.buffer.decode("latin1")[0]),
    "numpy.frombuffer": lambda s: float(numpy.frombuffer(s.buffer, dtype=numpy.uint8)[0]),
    "torch.frombuffer": lambda s: torch.frombuffer(s.buffer, dtype=torch.uint8).clone().sum(),
}
_OF_ARRAYS: dict[str, Call] = {
    "numpy item": lambda s: float(s.array[0]),
    "numpy.item": lambda s: s.array.item(0),
    "numpy.tolist": lambda s: s.array.tolist()[0],
    "numpy.sum": lambda s: float(s.array.sum()),
    "numpy function": lambda s: float(numpy.max(s.array)),
    "numpy iteration": lambda s: sum(float(k) for k in s.array),
    "numpy operator": lambda s: float((s.array * 2)[0]),
    "numpy comparison": lambda s: 2.0 if (s.array > 5).any() else 3.0,
    "sum of numpy": lambda s: float(sum(s.array)),
    "max of numpy": lambda s: float(max(s.array)),
    "float of a numpy item": lambda s: float(s.array[:1].sum()),
    "repr of numpy": lambda s: sum(map(ord, repr(s.array))),
    "torch.from_numpy": lambda s: torch.from_numpy(s.array).clone().float(),
    "torch.tensor of numpy": lambda s: torch.tensor(s.array).float(),
    "torch.as_tensor of numpy": lambda s: (torch.as_tensor(s.array) * 1).float(),
    "tensor times numpy": lambda s: torch.ones(3, dtype=torch.float64).mul(torch.from_numpy(s.array)).float(),
    "numpy view": lambda s: float(s.array[::2][0]),
    "numpy.flat": lambda s: float(s.array.flat[0]),
}
_OF_TEXTS: dict[str, Call] = {
    "re.findall": lambda s: 1.0 + len(re.findall(r"\d", s.text.of)),
    "re.sub with a function": lambda s: len(re.sub(r"\d", lambda found: "xx", s.text.of)),
    "str.split": lambda s: len(s.text.of.split()),
    "str.join and upper": lambda s: sum(map(ord, "-".join(s.text.of.upper().split()))),
    "str.replace": lambda s: len(s.text.of.replace(" ", "")),
    "str.startswith": lambda s: 2.0 if s.text.of.startswith(("a", "b")) else 3.0,
    "str in": lambda s: 2.0 if "b2" in s.text.of else 3.0,
    "str.encode": lambda s: s.text.of.encode()[0],
    "ord": lambda s: ord(s.text.of[0]),
    "textwrap": lambda s: len(textwrap.wrap(s.text.of, 2)) + 1,
    "torch.einsum with a text": lambda s: torch.einsum("i->i" if s.text.of[0] == "a" else "i->", torch.ones(3)),
    "getattr of torch by a text": lambda s: getattr(torch, "sin" if s.text.of[0] == "a" else "cos")(torch.ones(3)),
    "hash of a text in a dict": lambda s: {"a1 b2": 2.0}.get(s.text.of, 3.0),
}
_OF_WORDS: dict[str, Call] = {
    "str.join": lambda s: sum(map(ord, ",".join(s.words))),
    "sorted texts": lambda s: ord(sorted(s.words)[0][0]),
    "str.startswith of a list": lambda s: 2.0 if "ab".startswith(tuple(s.words)) and s.words[0] == "a" else 3.0,
    "max by len": lambda s: len(max(s.words, key=len)),
    "map of str.upper": lambda s: sum(map(ord, "".join(map(str.upper, s.words)))),
    "operator.itemgetter on words": lambda s: ord(operator.itemgetter(0)(s.words)[0]),
    "sorted by str.lower": lambda s: ord(sorted(s.words, key=str.lower)[-1][0]),
    "set of words": lambda s: 2.0 if {"a"} <= set(s.words) else 3.0,
    "isdisjoint": lambda s: 2.0 if {"a"}.isdisjoint(s.words) else 3.0,
}
_TABLES: dict[str, dict[str, Call]] = {
    "numbers": _OF_NUMBERS,
    "table": _OF_TABLES,
    "box": _OF_BOXES,
    "inner": _OF_INNER,
    "boxes": _OF_MANY_BOXES,
    "pairs": _OF_PAIRS,
    "number": _OF_A_NUMBER,
    "buffer": _OF_BUFFERS,
    "array": _OF_ARRAYS,
    "text": _OF_TEXTS,
    "words": _OF_WORDS,
}


def _program(call: Call, changed: str) -> Any:
    state = State()
    return lambda x: x * call(state), _CHANGES[changed](state)


for _changed, _table in _TABLES.items():
    for _name, _call in _table.items():
        enter(f"C over {_changed}: {_name}", lambda call=_call, changed=_changed: _program(call, changed), brief=True)


@kind
def context_of_decimal_numbers() -> Any:
    third = decimal.Decimal(1), decimal.Decimal(3)
    context = decimal.getcontext()
    before = context.prec
    change = Change(lambda: setattr(context, "prec", 2), lambda: setattr(context, "prec", before))
    return lambda x: x.double() * float(third[0] / third[1]), change


@kind
def limit_of_digits_of_an_int() -> Any:
    import sys

    number, before = 10**4000, sys.get_int_max_str_digits()

    def function(x: Tensor) -> Tensor:
        try:
            return x * len(str(number))
        except ValueError:
            return x - 1

    change = Change(lambda: sys.set_int_max_str_digits(1000), lambda: sys.set_int_max_str_digits(before))
    return function, change


@kind
def print_options_of_torch() -> Any:
    value = torch.tensor([1.23456789])
    change = Change(lambda: torch.set_printoptions(precision=2), lambda: torch.set_printoptions(profile="default"))
    return lambda x: x * len(repr(value)), change


@kind
def dir_of_an_object() -> Any:
    box = Box(k=1.0)
    return lambda x: x * len(dir(box)), attribute(box, "other", 1.0)


@kind
def signature_of_a_function() -> Any:
    def helper(x: Tensor, by: float = 2.0) -> Tensor:
        return x * by

    change = Change(lambda: setattr(helper, "__defaults__", (5.0,)), lambda: setattr(helper, "__defaults__", (2.0,)))
    return lambda x: x * inspect.signature(helper).parameters["by"].default, change


@kind
def subclasses_of_a_class() -> Any:
    class Base:
        pass

    made: list[Any] = []
    change = Change(lambda: made.append(type("More", (Base,), {})))
    return lambda x: x * (1 + len(Base.__subclasses__())), change
