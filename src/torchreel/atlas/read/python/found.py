"""What a walk over a Python file finds, before names are resolved."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable

from torchreel.atlas.model import Import, Symbol
from torchreel.atlas.read.python.scopes import GLOBAL, LOCAL, Binding, ClassScope, Scope

_FIRM = ("class", "function", "method", "alias")


class Found:
    """Symbols, imports and scopes of a file, in the order in which the walk comes to them."""

    def __init__(self) -> None:
        self.doc = ""
        """The docstring of the file."""
        self.first_statement = sys.maxsize
        """The offset where it begins."""
        self.errors: list[int] = []
        """Lines that are not understood."""
        self.module = Scope(None, "")
        self.scopes: list[Scope] = []
        self.classes: dict[int, ClassScope] = {}
        """The scope of each symbol that is a class."""
        self.symbols: list[Symbol] = []
        """Their lines and columns are not yet known, ..."""
        self.name_ends: list[int] = []
        """... but the offset at which the name of each ends."""
        self.imports: list[Import] = []
        self.docs: list[tuple[int, str]] = []
        """Docstrings, each with the offset where it begins."""
        self.soft_keywords: list[int] = []
        """Ends of `match`, `case` and `type` where they are keywords."""
        self.calls: list[tuple[Scope, ast.expr]] = []
        """Calls, and decorators, that may register or execute something."""
        self.decorated: dict[ast.expr, int] = {}
        """The function that each of those decorators is on."""
        self.aliases: list[tuple[Scope, str, ast.expr]] = []
        """Variables that may stand for a torch.library.Library or for a namespace of operators, with their value."""
        self._overloads: set[int] = set()
        self._stores: list[tuple[int, Scope, str, str, Callable[[], Symbol]]] = []

    def define(self, scope: Scope, symbol: Symbol, name_end: int, *, overload: bool = False) -> int:
        """Add a symbol and bind its name in the scope."""
        index = len(self.symbols)
        self.symbols.append(symbol)
        self.name_ends.append(name_end)
        if overload:
            self._overloads.add(index)
        if scope.bound.get(symbol.name) is GLOBAL:
            scope = self.module
            symbol.scope = ""
        if self._gives_way(scope.bound.get(symbol.name), index):
            scope.bound[symbol.name] = index
        return index

    def path_of(self, scope: Scope, name: str) -> str:
        """The path of a function or class that is defined in a scope."""
        return name if not scope.path or scope.bound.get(name) is GLOBAL else f"{scope.path}.{name}"

    def _gives_way(self, was: Binding | None, index: int) -> bool:
        """Whether a name shall mean this symbol and no longer what it was bound to.

        Of two alike the first stays, unless it only overloads the other. A function or a class comes before an import,
        and that before a variable: a variable is what stands in for an import that fails.
        """
        if type(was) is int:
            if was in self._overloads:
                return index not in self._overloads
            return self.symbols[index].kind in _FIRM and self.symbols[was].kind not in _FIRM
        return type(was) is not str or self.symbols[index].kind in _FIRM

    def imported(self, scope: Scope, row: Import, name: str, path: str) -> None:
        """Add an import that binds a name to a path."""
        self.imports.append(row)
        if scope.bound.get(name) is GLOBAL:
            scope = self.module
        was = scope.bound.get(name)
        if type(was) is not str and not (type(was) is int and self.symbols[was].kind in _FIRM):
            scope.bound[name] = path

    def rebind(self, scope: Scope, name: str) -> None:
        """A name that the scope knows is assigned to: the first parameter of a method then is just a variable."""
        if type(scope.bound[name]) is ClassScope:
            scope.bound[name] = LOCAL

    def store(self, scope: Scope, holder: str, name: str, name_end: int, symbol: Callable[[], Symbol]) -> None:
        """`holder.name = ...`: an attribute of a class, if it turns out that the holder is an instance."""
        self._stores.append((name_end, scope, holder, name, symbol))

    def settle(self) -> None:
        """Find out which stores define an attribute: the first in a class that has no method or field of that name."""
        for name_end, scope, holder, name, symbol in sorted(self._stores, key=lambda store: store[0]):
            owner = scope.find(holder)
            if type(owner) is ClassScope and owner.member(name) is None:
                owner.attributes[name] = len(self.symbols)
                attribute = symbol()
                attribute.scope = owner.path
                self.symbols.append(attribute)
                self.name_ends.append(name_end)
            else:
                scope.keys.append((holder, name))
                scope.ends.append(name_end)
        self._stores.clear()  # they hold the walk, which holds this
