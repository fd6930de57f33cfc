"""Random state for programs of Python: trees of objects and containers, as text, and what may become of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

_NAMES = ("a", "b", "c", "d")
_LEAVES = ("float", "float", "float", "int", "bool", "text", "tensor", "numbers", "numbers")
_PLAIN = ("list", "dict", "box", "box", "namespace", "data", "tuple")
_ODD = ("slots", "ordered", "deque", "default", "pair", "user")
_PLAIN_NUMBERS = ("list", "list", "tuple")
_ODD_NUMBERS = ("deque", "array", "numpy", "set", "user", "bytes")
_WORDS = ("alpha", "beta", "gamma", "")

# The classes that the trees are made of.
CLASSES = """
class Box:
    def __init__(self, **values):
        self.__dict__.update(values)

class Slots:
    __slots__ = ("a", "b", "c", "d")

    def __init__(self, **values):
        for name, value in values.items():
            setattr(self, name, value)

@dataclasses.dataclass
class Data:
    a: object = None
    b: object = None
    c: object = None
    d: object = None

Pair = collections.namedtuple("Pair", "a b c d", defaults=(None,) * 4)
"""
_BY_ATTRIBUTE = {"box": "Box", "namespace": "types.SimpleNamespace", "data": "Data", "slots": "Slots", "pair": "Pair"}
_BY_KEY = {"dict": "{}", "ordered": "collections.OrderedDict({})", "default": "collections.defaultdict(float, {})"}
_IN_A_ROW = {"list": "[]", "deque": "collections.deque([])", "user": "collections.UserList([])"}
_NUMBERS = {
    "list": "[{}]",
    "tuple": "({},)",
    "deque": "collections.deque([{}])",
    "array": "array.array('d', [{}])",
    "numpy": "numpy.array([{}])",
    "set": "{{{}}}",
    "user": "collections.UserList([{}])",
    "bytes": "bytearray(int(abs(k)) % 200 for k in [{}])",
}


@dataclass(eq=False)
class Node:
    """A value of the state: how it is made and where it is."""

    kind: str
    path: str  # from a global
    parent: Node | None = None
    key: str = ""  # of it in its parent: ".a", "[0]" or "['a']"
    made_of: str = ""  # for numbers: by which type
    text: str = ""  # an expression that makes it
    parts: list[Node] = field(default_factory=list)

    def all(self) -> Iterator[Node]:
        yield self
        for part in self.parts:
            yield from part.all()

    def can_be_put(self) -> bool:
        """Whether its parent lets it be replaced."""
        return self.parent is None or self.parent.kind not in ("tuple", "pair")


class Grower:
    """Makes trees, of plain types mostly, or of odd ones too."""

    def __init__(self, chance: random.Random, odd: bool) -> None:
        self.chance, self.odd = chance, odd

    def tree(self, path: str, depth: int) -> Node:
        root = self._node(path, None, "", depth)
        return root if root.parts or depth == 0 else self.tree(path, depth)

    def _node(self, path: str, parent: Node | None, key: str, depth: int) -> Node:
        if depth == 0 or (parent is not None and self.chance.random() < 0.25):
            kind = self.chance.choice(_LEAVES)
            node = Node(kind, path, parent, key)
            if kind == "numbers":
                node.made_of = self._one_of(_PLAIN_NUMBERS, _ODD_NUMBERS)
            node.text = self.leaf_text(node)
            return node
        node = Node(self._one_of(_PLAIN, _ODD), path, parent, key)
        for name in _NAMES[: self.chance.randint(1, 3)]:
            key = self._key(node, name)
            node.parts.append(self._node(path + key, node, key, depth - 1))
        node.text = text_of(node)
        return node

    def _one_of(self, plain: tuple[str, ...], odd: tuple[str, ...]) -> str:
        return self.chance.choice(odd if self.odd and self.chance.random() < 0.3 else plain)

    def _key(self, node: Node, name: str) -> str:
        if node.kind in _BY_ATTRIBUTE:
            return f".{name}"
        return f"[{name!r}]" if node.kind in _BY_KEY else f"[{len(node.parts)}]"

    def leaf_text(self, node: Node) -> str:
        """A value for a leaf, another one at each time."""
        chance = self.chance
        if node.kind == "float":
            return repr(chance.choice([0.5, 1.5, -0.75, 2.0, 1.0, 0.0, -0.0, 1, round(chance.uniform(-2, 2), 3)]))
        if node.kind == "int":
            return repr(chance.randint(0, 4))
        if node.kind == "bool":
            return repr(chance.random() < 0.5)
        if node.kind == "text":
            return repr(chance.choice(_WORDS))
        if node.kind == "tensor":
            return f"torch.full((3,), {chance.uniform(-1, 1):.3f})"
        numbers = ", ".join(repr(round(chance.uniform(-1.5, 1.5), 2)) for _ in range(chance.randint(1, 4)))
        return _NUMBERS[node.made_of].format(numbers)


def text_of(node: Node, leaf: Node | None = None, other: str = "") -> str:
    """The expression of a tree; with another text for one of its leaves, if that is given."""
    if node is leaf or not node.parts:
        return other if node is leaf else node.text
    texts = [text_of(part, leaf, other) for part in node.parts]
    keys = [part.key.strip(".[]") for part in node.parts]
    if node.kind in _BY_ATTRIBUTE:
        values = ", ".join(f"{key}={text}" for key, text in zip(keys, texts, strict=True))
        return f"{_BY_ATTRIBUTE[node.kind]}({values})"
    if node.kind in _BY_KEY:
        values = ", ".join(f"{key}: {text}" for key, text in zip(keys, texts, strict=True))
        return _BY_KEY[node.kind].replace("{}", f"{{{values}}}")
    values = ", ".join(texts)
    return f"({values},)" if node.kind == "tuple" else _IN_A_ROW[node.kind].replace("[]", f"[{values}]")


@dataclass(frozen=True)
class Mutation:
    """Statements that change state, and those that undo them."""

    do: tuple[str, ...]
    undo: tuple[str, ...]


def put(node: Node, value: str) -> Mutation:
    """Another value in its place; the old one itself comes back."""
    do = f"SAVED.append({node.path})", f"{node.path} = {value}"
    return Mutation(do, (f"{node.path} = SAVED.pop()",))


# An equal value that is another object, or of another type.
_EQUAL = {
    "float": ("float(repr({p}))", "int({p}) if {p} == int({p}) else float(repr({p}))", "-{p} if {p} == 0 else {p}"),
    "int": ("float({p})", "bool({p}) if {p} in (0, 1) else int(str({p}))"),
    "bool": ("int({p})", "float({p})"),
    "text": ("''.join(list({p}))",),
    "tensor": ("{p}.clone()", "{p}.view(3)"),
    "list": ("list({p})", "tuple({p})"),
    "tuple": ("tuple(list({p}))", "list({p})"),
    "dict": ("dict({p})", "dict(reversed({p}.items()))", "collections.OrderedDict({p})"),
    "box": ("copy.copy({p})", "types.SimpleNamespace(**vars({p}))"),
    "set": ("set(reversed(list({p})))",),
}


def equal(chance: random.Random, node: Node) -> Mutation | None:
    """The same for ==, and not the same for a program that looks closer."""
    ways = _EQUAL.get(node.made_of or node.kind)
    return put(node, chance.choice(ways).format(p=node.path)) if ways and node.can_be_put() else None


_IN_PLACE: dict[str, list[tuple[str, str]]] = {
    "list": [
        ("{p}.append({n})", "{p}.pop()"),
        ("{p}.insert(0, {n})", "{p}.pop(0)"),
        ("{p}.reverse()", "{p}.reverse()"),
        ("SAVED.append({p}.copy()); {p}[0] = {n}", "{p}[:] = SAVED.pop()"),
        ("SAVED.append({p}.copy()); {p}.clear()", "{p}[:] = SAVED.pop()"),
    ],
    "deque": [("{p}.append({n})", "{p}.pop()"), ("{p}.rotate(1)", "{p}.rotate(-1)")],
    "array": [("{p}.append({n})", "{p}.pop()")],
    "numpy": [("{p} += 1", "{p} -= 1"), ("{p}[0] *= -2", "{p}[0] /= -2")],
    "set": [("{p}.add(9.5)", "{p}.discard(9.5)")],
    "user": [("{p}.append({n})", "{p}.pop()")],
    "bytes": [("{p}.append(7)", "{p}.pop()")],
}
_OF_A_DICT = [
    ("{p}['new'] = {n}", "del {p}['new']"),
    ("first = next(iter({p})); {p}[first] = {p}.pop(first)", "last = {p}.popitem(); {p}.update([last])"),
]


def in_place(chance: random.Random, node: Node) -> Mutation | None:
    """The same object with other contents."""
    options = _IN_PLACE.get(node.made_of or node.kind, [])
    if node.kind in ("dict", "ordered", "default"):
        options = _OF_A_DICT
    if node.kind == "tensor":
        options = [("{p}.add_(0.5)", "{p}.sub_(0.5)"), ("{p}.scale = {n}", "del {p}.scale")]
    if node.kind in ("box", "namespace"):
        options = [("{p}.new = {n}", "del {p}.new")]
    if not options:
        return None
    do, undo = chance.choice(options)
    number = repr(round(chance.uniform(-1, 1), 2))
    return Mutation((do.format(p=node.path, n=number),), (undo.format(p=node.path, n=number),))
