"""Random functions, classes and closures that stand beside the function of a program, and how they are replaced."""

from __future__ import annotations

import random

from tests.graphs.guards.random_reads import Reader
from tests.graphs.guards.random_state import Mutation, Node

_CLASS = """
class {name}:
    factor = 0.5

    def __init__({me}, held):
        {me}.held = held

    @property
    def double({me}):
        return {me}.factor * 2

    def times({me}, x):
        return x * {number} * {me}.double

    def __call__({me}, x):
        return {me}.times(x) + 0.5

    @classmethod
    def moved(cls, x):
        return x + cls.factor

    @staticmethod
    def still(x):
        return x * {still}

{object} = {name}({path})
"""
_CLOSURE = """
def make_{name}(held, factor):
    def inner(x):
        def deeper(y):
            return y * {number} * factor

        return deeper(x) + 0.1

    def put(value):
        nonlocal factor
        factor = value

    return inner, put

{name}, put_{name} = make_{name}({path}, 0.75)
"""
_DECORATED = """
def decorate_{name}(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * {name}_options["factor"]

    return wrapper

{name}_options = {{"factor": 0.5}}

@decorate_{name}
def {name}(x, *rest, by=1.5, **more):
    return x * by + len(rest) + len(more)
"""


class Helpers:
    """Their definitions, how each is called with a tensor, and what may become of them."""

    def __init__(self, chance: random.Random, reads: Reader) -> None:
        self.chance, self.reads = chance, reads
        self.definitions: list[str] = []
        self.calls: list[tuple[str, Node | None]] = []  # the node is one that is handed over
        self.swaps: list[Mutation] = []
        self._count = 0
        makers = [self._function, self._class, self._closure, self._partial, self._decorated, self._list]
        for make in chance.sample(makers, chance.randint(1, 4)):
            make()

    def _name(self, start: str) -> str:
        self._count += 1
        return f"{start}{self._count}"

    def _node(self) -> Node:
        return self.chance.choice(self.reads.nodes())

    def _number(self, node: Node, called: str) -> str:
        return self.reads.number(node, called) if node.parts else "1.5"

    def _function(self) -> None:
        name, node, by = self._name("helper"), self._node(), round(self.chance.uniform(0.5, 1.5), 2)
        self.definitions.append(
            f"def {name}(x, held, by={by}):\n    return x * {self._number(node, 'held')} + by\n\n"
            f"def other_{name}(x, held, by={by}):\n    return x - by\n"
        )
        self.calls.append((f"{name}({{x}}, {{held}})", node))
        replaced = f"globals()[{name!r}]"
        self.swaps += [
            Mutation((f"{name}.__defaults__ = (3.5,)",), (f"{name}.__defaults__ = ({by},)",)),
            Mutation((f"SAVED.append({name})", f"{replaced} = other_{name}"), (f"{replaced} = SAVED.pop()",)),
            Mutation(
                (f"SAVED.append({name}.__code__)", f"{name}.__code__ = other_{name}.__code__"),
                (f"{name}.__code__ = SAVED.pop()",),
            ),
        ]

    def _class(self) -> None:
        name, node, me = self._name("Owner"), self._node(), self.chance.choice(["self", "this", "me"])
        number = self._number(node, f"{me}.held")
        values = {"name": name, "object": name.lower(), "me": me, "number": number, "still": self.reads.number()}
        self.definitions.append(_CLASS.format(path=node.path, **values))
        self.reads.read.append(node)
        made = name.lower()
        ways = [f"{made}.times({{x}})", f"{name}.moved({{x}})", f"{made}({{x}})", f"{made}.still({{x}})"]
        self.calls += [(way, None) for way in self.chance.sample(ways, 2)]
        self.swaps += [
            Mutation((f"{name}.factor = 2.5",), (f"{name}.factor = 0.5",)),
            Mutation((f"{made}.factor = 1.25",), (f"del {made}.factor",)),
            Mutation(
                (f"SAVED.append({name}.times)", f"{name}.times = lambda me, x: x * 0.25"),
                (f"{name}.times = SAVED.pop()",),
            ),
            Mutation((f"{made}.times = lambda x: x * 0.75",), (f"del {made}.times",)),
            Mutation(
                (f"{made}.__class__ = type('Other', ({name},), {{'factor': 3.5}})",), (f"{made}.__class__ = {name}",)
            ),
        ]

    def _closure(self) -> None:
        name, node = self._name("closed"), self._node()
        self.definitions.append(_CLOSURE.format(name=name, number=self._number(node, "held"), path=node.path))
        self.reads.read.append(node)
        self.calls.append((f"{name}({{x}})", None))
        self.swaps.append(Mutation((f"put_{name}(1.75)",), (f"put_{name}(0.75)",)))

    def _partial(self) -> None:
        name = self._name("partial")
        self.definitions.append(f"{name} = functools.partial(lambda x, by, more: x * by + more, by=0.5, more=0.25)\n")
        self.calls.append((f"{name}({{x}})", None))
        self.swaps.append(Mutation((f"{name}.keywords['by'] = 2.0",), (f"{name}.keywords['by'] = 0.5",)))

    def _decorated(self) -> None:
        name = self._name("decorated")
        self.definitions.append(_DECORATED.format(name=name))
        self.calls += [(f"{name}({{x}})", None), (f"{name}({{x}}, 1, 2, by=0.5, k=3)", None)]
        inner = f"{name}.__wrapped__.__kwdefaults__['by']"
        self.swaps += [
            Mutation((f"{name}_options['factor'] = 2.5",), (f"{name}_options['factor'] = 0.5",)),
            Mutation((f"{inner} = 0.25",), (f"{inner} = 1.5",)),
        ]

    def _list(self) -> None:
        """Functions in a list, one after the other."""
        name = self._name("steps")
        self.definitions.append(
            f"{name} = [torch.sin, lambda x: x * {self.reads.number()}, functools.partial(torch.add, other=0.5)]\n"
        )
        self.calls.append((f"functools.reduce(lambda y, step: step(y), {name}, {{x}})", None))
        self.swaps += [
            Mutation((f"{name}.reverse()",), (f"{name}.reverse()",)),
            Mutation((f"{name}.append(torch.tanh)",), (f"{name}.pop()",)),
        ]
