"""Scopes of a Python file, and what a name means in them.

A scope remembers which names it binds and which it uses. What a use means is asked when the whole file is known, since
a function may use what stands below it, and once for each name of a scope, not once for each place.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from torchreel.atlas.model import Use
from torchreel.atlas.read.python.tokens import PLAIN


class Bound(enum.Enum):
    """How a name is bound that is neither a symbol nor imported."""

    LOCAL = 1
    GLOBAL = 2
    NONLOCAL = 3


LOCAL, GLOBAL, NONLOCAL = Bound.LOCAL, Bound.GLOBAL, Bound.NONLOCAL

Binding: TypeAlias = "int | str | Bound | ClassScope"
"""An index of a symbol, the path of an import, or, for the first parameter of a method, the class."""

Key: TypeAlias = "str | tuple[str, ...]"
"""A name, or a chain of attributes that begins with a name: `("torch", "nn", "Linear")` for `Linear`."""

MOST_PARTS = 64
"""Of a chain. Attributes beyond are attributes of something unknown."""


MOST_NESTED = 150
"""Scopes in each other. Python allows no more than 100 indented ones; beyond, a scope sees only the module."""


class Scope:
    """A module, a function, a lambda or a comprehension, or, as `ClassScope`, a class."""

    __slots__ = ("bound", "depth", "ends", "in_string", "keys", "outer", "path", "variables", "within")

    def __init__(self, parent: Scope | None, path: str, *, within: Scope | None = None) -> None:
        """`within` is given for what is no function: a comprehension or a list of type parameters."""
        self.path = path
        """The names around and its own, joined with dots."""
        self.variables = "" if parent else "variable"
        """The kind of symbol that an assigned name is; none in a function."""
        self.bound: dict[str, Binding] = {}
        self.outer: Scope | None = parent.outer if type(parent) is ClassScope else parent
        """Where a name is looked for next: functions do not see what the class around them binds."""
        self.depth: int = self.outer.depth + 1 if self.outer is not None else 0
        if self.outer is not None and self.depth > MOST_NESTED:
            self.outer, self.depth = self.outer.module(), 1
        self.within = within
        self.in_string: bool = parent is not None and parent.in_string
        """Whether it is in an f-string, of which the tokens are not known."""
        self.keys: list[Key] = []
        """What is used, ..."""
        self.ends: list[int] = []
        """... and the offset at which each name ends."""

    def replacement_field(self) -> Scope:
        """The same scope once more, for what stands in an f-string."""
        field = object.__new__(Scope)
        field.path, field.variables, field.bound, field.outer = self.path, self.variables, self.bound, self.outer
        field.within, field.in_string, field.depth = self.assigns_in(), True, self.depth
        field.keys, field.ends = [], []
        return field

    def assigns_in(self) -> Scope:
        """The scope in which `:=` binds."""
        return self.within or self

    def module(self) -> Scope:
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope

    def owner(self, name: str) -> Scope | None:
        """The scope that binds a name which is used here; None if nothing in the file does."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.bound.get(name)
            if found is GLOBAL:
                module = self.module()
                return module if name in module.bound else None
            if found is not None and found is not NONLOCAL:
                return scope
            scope = scope.outer
        return None

    def find(self, name: str) -> Binding | None:
        """What a name is in this scope; None if nothing in the file binds it."""
        owner = self.owner(name)
        return owner.bound[name] if owner is not None else None


class ClassScope(Scope):
    """The body of a class."""

    __slots__ = ("around", "attributes", "bases", "is_enum")

    def __init__(self, parent: Scope, path: str, bases: Sequence[tuple[str, ...]], *, is_enum: bool) -> None:
        super().__init__(parent, path)
        self.variables = "field"
        self.around = parent
        self.bases = bases
        """Each a name or a chain of attributes in the scope around."""
        self.is_enum = is_enum
        self.attributes: dict[str, int] = {}
        """What methods assign: `self.x = ...`."""

    def member(self, name: str) -> int | str | None:
        """A symbol, or the path of an import, that the class itself has."""
        found = self.bound.get(name)
        return found if isinstance(found, int | str) else self.attributes.get(name)


class Resolver:
    """Turns names into slots, and collects the uses that these are indices of."""

    def __init__(self, classes: dict[int, ClassScope], rank: Sequence[int]) -> None:
        """Names are bound to symbols by the order of the walk; `rank` says which index each of them has in the end."""
        self._classes, self._rank = classes, rank
        self.uses: list[Use] = []
        self._slots: dict[tuple[str, int, str], int] = {}
        self._bases: dict[ClassScope, list[ClassScope]] = {}

    def slot(self, scope: Scope, key: Key) -> int:
        """The index of the use of a name, or of an attribute, that the scope binds."""
        if type(key) is str:
            return self._slot(key, scope.find(key))
        return self._slot(key[-1], self.binding(scope, key))

    def _slot(self, name: str, binding: Binding | None) -> int:
        if binding is None:
            use = (name, -1, "")
        elif type(binding) is str:
            use = (name, -1, binding)
        elif type(binding) is int:
            use = (name, self._rank[binding], "")
        else:
            return PLAIN
        slot = self._slots.get(use)
        if slot is None:
            slot = self._slots[use] = len(self.uses)
            self.uses.append(Use(*use))
        return slot

    def binding(self, scope: Scope, parts: Sequence[str]) -> Binding | None:
        """What a chain of attributes names; None if it is not known."""
        found = scope.find(parts[0])
        for attribute in parts[1:]:
            if type(found) is str:
                found = f"{found}.{attribute}"
                continue
            holder = self.class_of(found)
            if holder is None:
                return None
            found = self._member(holder, attribute)
        return found

    def class_of(self, binding: Binding | None) -> ClassScope | None:
        """The class that a name stands for, or, for the first parameter of a method, is an instance of."""
        return self._classes.get(binding) if type(binding) is int else binding if type(binding) is ClassScope else None

    def _member(self, holder: ClassScope, name: str) -> int | str | None:
        """A method, field or attribute of a class, or of those of its base classes that are in the file."""
        seen = set()
        waiting = [holder]
        while waiting:
            holder = waiting.pop()
            found = holder.member(name)
            if found is not None:
                return found
            seen.add(holder)
            waiting += [base for base in reversed(self._bases_of(holder)) if base not in seen]
        return None

    def _bases_of(self, holder: ClassScope) -> list[ClassScope]:
        """Base classes that are in the file. The parts of a dotted one stand in each other: none is inherited."""
        bases = self._bases.get(holder)
        if bases is None:
            bases = self._bases[holder] = []
            for parts in holder.bases:
                found = self.class_of(holder.around.find(parts[0]))
                for part in parts[1:]:
                    found = self.class_of(found.member(part)) if found is not None else None
                if found is not None:
                    bases.append(found)
        return bases


class _ScopeSlots(dict[Key, int]):
    """The slots of the names of one scope, found when first asked for. What it does not bind is what it is outside."""

    def __init__(self, resolver: Resolver, scope: Scope, outer: _ScopeSlots | None) -> None:
        self._resolver, self._scope, self._bound, self._outer = resolver, scope, scope.bound, outer

    def __missing__(self, key: Key) -> int:
        if self._outer is not None and (key if type(key) is str else key[0]) not in self._bound:
            slot = self[key] = self._outer[key]
        else:
            slot = self[key] = self._resolver.slot(self._scope, key)
        return slot


def slots_of(scopes: Iterable[Scope], resolver: Resolver) -> Iterator[list[int]]:
    """For each key of each scope the index of its use, or PLAIN. Outer scopes come before inner ones."""
    tables: dict[Scope, _ScopeSlots] = {}
    for scope in scopes:
        table = _ScopeSlots(resolver, scope, tables[scope.outer] if scope.outer is not None else None)
        tables[scope] = table
        yield list(map(table.__getitem__, scope.keys))
