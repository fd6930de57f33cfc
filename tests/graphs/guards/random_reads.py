"""Expressions that read random state: by all the ways that Python has to get from an object to a number."""

from __future__ import annotations

import random

from tests.graphs.guards.random_state import Node

_FLOATS = (
    "{}", "{}", "{}", "abs({})", "math.cos({})", "round({}, 1)", "float('%.2f' % {})", "float(f'''{{{}:.1f}}''')",
    "divmod({}, 2)[1]", "({} or 1.5)", "math.copysign(1.5, {})", "len(str({}))", "len(type({}).__name__) * 0.3",
    "(lambda k: k * 0.5)({})", "max({}, 0.5, key=abs)", "hash({}) % 3",
)  # fmt: skip
_INTS = ("{}", "float({})", "{} % 3", "math.sqrt({})", "len(range({}))", "sum(range({}))", "[0.5, 1.5, 2.5][{} % 3]")
_BOOLS = ("(0.5 if {} else 1.5)", "float({})", "(not {}) * 0.5", "(1.5, 0.5)[{}]")
_TEXTS = (
    "len({})", "len({}.upper())", "({} + 'a').count('a')", "(0.5 if {} == 'alpha' else 1.5)", "({} > 'b') + 0.5",
    "{{'alpha': 0.5, 'beta': 1.5}}.get({}, 2.5)", "len(', '.join([{}, 'x']))",
)  # fmt: skip
_TENSORS = (
    "{}.dim()",
    "{}.shape[0] * 0.1",
    "({}.requires_grad + 0.5)",
    "{}.numel() * 0.1",
    "({}.dtype is torch.float32) * 0.5",
)
_NUMBERS = (
    "sum({})", "len({})", "max({})", "min({})", "sorted({})[0]", "sum(k * 0.5 for k in {})", "max(list({}))",
    "len([k for k in {} if k > 0])", "next(iter({}))", "(0.5 if 9.5 in {} else 1.5)", "len({{k: 1 for k in {}}})",
    "functools.reduce(operator.sub, {}, 1.0)", "sum(k for _, k in enumerate({}))", "sum(map(abs, {}))",
    "(lambda a, *rest: a)(*{})",
    "sorted({}, key=abs, reverse=True)[0]", "sum(a * b for a, b in zip({0}, {0}))", "float(bool({}))",
)  # fmt: skip
_ODD_NUMBERS = (
    "sum(itertools.chain({}, [1.0]))", "sum(itertools.islice({}, 2))", "float(str({}).count('-'))", "len(repr({}))",
    "max({}, key=lambda k: -k)", "sum(filter(None, {}))", "math.fsum({})", "sorted({}, key=operator.neg)[0]",
    "sum(itertools.accumulate({}))", "copy.copy({})[0]", "math.prod({})", "list(reversed({}))[0]",
)  # fmt: skip
_UNORDERED = ("float(sum({}))", "len({})", "float(max({}))", "sum(float(k) for k in {})")
_ANY = (
    "(0.5 if {} else 1.5)",
    "(0.5 if {} is not None else 1.5)",
    "(0.5 if isinstance({}, list) else 1.5)",
    "len(type({}).__name__) * 0.1",
)
_SIZED = ("len({})", "len({})", "sum(1 for _ in {})", "len(list({}))", "len(tuple({}))", "len([*{}])")
_DICTS = (
    "('new' in {}) + 0.5",
    "len({}.keys())",
    "(list({})[0] == 'a') + 0.5",
    "len({}.values())",
    "len({{**{}}})",
    "len(dict({}))",
)
_BOXES = ("hasattr({}, 'new') + 0.5", "hasattr({}, 'a') + 0.5", "isinstance(getattr({}, 'new', 0.5), float) + 0.5")
_JOINED = (
    "({} + {})",
    "({} - {})",
    "({} * {})",
    "max({}, {})",
    "min({}, {})",
    "operator.add({}, {})",
    "({} if MODEL.training else {})",
)


class Reader:
    """Writes expressions, and notes what they read."""

    def __init__(self, chance: random.Random, odd: bool, roots: list[Node]) -> None:
        self.chance, self.odd, self.roots = chance, odd, roots
        self.read: list[Node] = []
        self.passed: Node | None = None  # the tree that is an argument, called "held" in the function

    def nodes(self, *kinds: str) -> list[Node]:
        found = [node for root in self.roots for node in root.all()]
        return [node for node in found if not kinds or node.kind in kinds]

    def rows(self) -> list[Node]:
        """Numbers in an order."""
        return [node for node in self.nodes("numbers") if node.made_of != "set"]

    def reach(self, node: Node, base: Node | None = None, called: str = "") -> str:
        """A value: from a global, or from a local that is one of those that hold it."""
        if node is base:
            return called
        self.read.append(node)
        if node.parent is not None:
            return self._step_to(self.reach(node.parent, base, called), node)
        if node is self.passed and not called:
            return "held"
        return f"globals()[{node.path!r}]" if self.odd and self.chance.random() < 0.03 else node.path

    def _step_to(self, holder: str, node: Node) -> str:
        """From a container to its part."""
        if self.chance.random() < 0.75:
            return f"{holder}{node.key}"
        if node.key.startswith("."):
            return self._attribute(holder, node.key[1:], node.parent)
        key = node.key[1:-1]
        if key.isdigit():
            ways = [f"{holder}[{key} or 0]", f"list({holder})[{key}]"]
        else:
            ways = [f"{holder}.get({key})", f"{holder}[str({key})]", f"dict({holder})[{key}]"]
        if self.odd:
            ways += [f"operator.itemgetter({key})({holder})", f"operator.getitem({holder}, {key})"]
        return self.chance.choice(ways)

    def _attribute(self, holder: str, name: str, parent: Node | None) -> str:
        ways = [f"getattr({holder}, {name!r})", f"getattr({holder}, {name!r}, 1.0)"]
        if self.odd:
            ways += [f"operator.attrgetter({name!r})({holder})", f"object.__getattribute__({holder}, {name!r})"]
            ways += [f"vars({holder})[{name!r}]"] if parent and parent.kind in ("box", "namespace") else []
        return self.chance.choice(ways)

    def number(self, base: Node | None = None, called: str = "", depth: int = 0) -> str:
        """A float that depends on state: on all of it, or on what a local holds."""
        nodes = list(base.all()) if base else self.nodes()
        node = self.chance.choice([one for one in nodes if one is not base] or nodes)
        if node is base:
            return repr(round(self.chance.uniform(-1, 1), 2))
        found = self._of(node, self.reach(node, base, called))
        if self.chance.random() < 0.05:
            found = self._same(node, self.chance.choice(nodes), base, called)
        if depth < 2 and self.chance.random() < 0.3:
            return self.chance.choice(_JOINED).format(found, self.number(base, called, depth + 1))
        return found

    def _same(self, node: Node, other: Node, base: Node | None, called: str) -> str:
        """Whether two values are one object, or look alike."""
        a, b = self.reach(node, base, called), self.reach(other, base, called)
        return self.chance.choice(["(0.5 if {} is {} else 1.5)", "(type({}) is type({})) + 0.5"]).format(a, b)

    def _of(self, node: Node, path: str) -> str:
        simple = {"float": _FLOATS, "int": _INTS, "bool": _BOOLS, "text": _TEXTS, "tensor": _TENSORS}
        ways = list(simple.get(node.kind, ()))
        if node.kind == "numbers":
            ways = [*_NUMBERS, *(_ODD_NUMBERS if self.odd else ())]
            if node.made_of in ("numpy", "set"):
                ways = list(_UNORDERED)
        return self.chance.choice(ways or self._of_container(node)).format(path)

    def _of_container(self, node: Node) -> list[str]:
        ways = list(_ANY)
        if node.kind in ("list", "dict", "tuple", "deque", "ordered", "default", "user"):
            ways += _SIZED
        if node.kind in ("dict", "ordered", "default"):
            ways += _DICTS
        if node.kind in ("box", "namespace"):
            ways += [*_BOXES, *(["len(vars({})) * 0.5"] if self.odd else [])]
        return ways

    def condition(self) -> str:
        return f"{self.number()} {self.chance.choice(['>', '<', '==', '>='])} {self.chance.choice([0, 0.5, 1.0, 2])}"
