"""The symbols of a file as an outline: which stands in which."""

from __future__ import annotations

from typing import NamedTuple

from torchreel.atlas.model import Costs, FileFacts, Symbol
from torchreel.atlas.read.languages import PYTHON
from torchreel.atlas.site.format import shortened
from torchreel.atlas.symbols import first_sentence, qualified

_MOST_IN_CONTENTS = 150
_DEEPEST = 6
_LANDMARKS = frozenset(("class", "struct", "union", "enum", "function", "method", "macro", "heading"))
_RUN = frozenset(("function", "method"))


class Entry(NamedTuple):
    """A symbol, its id on the page, how many symbols it stands in, what it says of itself, and its cost."""

    symbol: Symbol
    anchor: str
    depth: int
    sentence: str
    """The first of its documentation, shortened."""
    costs: Costs | None
    """None where nothing was recorded, or where a recording cannot tell: of a function in C++ that is no kernel."""


def outline(facts: FileFacts) -> list[Entry]:
    """All symbols, in the order of their lines."""
    around: list[tuple[str, int]] = []
    entries: list[Entry] = []
    zero = Costs() if facts.costs is not None and facts.language == PYTHON else None
    for index, (symbol, anchor) in enumerate(zip(facts.symbols, facts.anchors, strict=True)):
        while around and not (_holds(around[-1][0], symbol.scope) and symbol.line <= around[-1][1]):
            around.pop()
        costs = facts.symbol_costs.get(index) or (zero if symbol.kind in _RUN else None)
        sentence = shortened(first_sentence(symbol.doc)) if symbol.doc else ""
        entries.append(Entry(symbol, anchor, min(len(around), _DEEPEST), sentence, costs))
        if symbol.end_line > symbol.line:
            around.append((full_name(symbol, facts.language), symbol.end_line))
    return entries


def landmarks(entries: list[Entry]) -> list[Entry]:
    """Those that the table of contents names: what is defined and runs; of a long file, what stands outermost."""
    found = [entry for entry in entries if entry.symbol.kind in _LANDMARKS and not entry.symbol.declaration]
    if len(found) <= _MOST_IN_CONTENTS:
        return found
    return [entry for entry in found if entry.symbol.kind != "method"]


def full_name(symbol: Symbol, language: str) -> str:
    """The name with its scope."""
    return qualified(symbol.scope, symbol.name, language)


def _holds(name: str, scope: str) -> bool:
    return scope == name or scope.startswith((f"{name}.", f"{name}::"))
