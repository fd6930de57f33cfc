"""Which names a C++ text uses, and which of them its own scopes explain.

A name that is declared within the function around it (a parameter, a local variable) says nothing to a reader of
other files, and is left out. A name is known to be a symbol of this file if its scopes, from the inside out, have one
of that name, and only one that it can be: not one of several overloads. What comes after a dot or an arrow is a member
of we do not know what.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from itertools import compress, repeat

from torchreel.atlas.model import DEFINITION, Use
from torchreel.atlas.read.cpp.code import Code
from torchreel.atlas.read.cpp.directives import Directives
from torchreel.atlas.read.cpp.frames import Declared
from torchreel.atlas.read.cpp.structure import Structure
from torchreel.atlas.read.cpp.words import Words

_LOCAL = -100
"""In place of a kind: of a name that is left out."""
_WORDS_READ = 30
"""How often all words may be looked at as local ones: spans within spans, more than any text of C++ has."""
_TYPES = frozenset(("class", "struct", "union", "enum"))


def _parameter_types(declared: Declared, code: str) -> tuple[str, ...]:
    parameters = declared.function.child_by_field_name("parameters") if declared.function is not None else None
    types = (node.child_by_field_name("type") for node in (parameters.named_children if parameters is not None else ()))
    return tuple(code[node.start_byte : node.end_byte] for node in types if node is not None)


def _only_one(declared: list[Declared], code: str) -> Declared | None:
    """The one thing that these declare, if it is one: a definition and its declarations, or one declaration."""
    definitions = [row for row in declared if not row.declaration]
    if len(definitions) > 1 or (not definitions and (len(declared) > 1 or declared[0].kind in _TYPES)):
        return None
    one = definitions[0] if definitions else declared[0]
    others = [row for row in declared if row is not one]
    if one.kind in _TYPES:
        return one if all(row.kind in _TYPES for row in others) else None
    types = _parameter_types(one, code) if others else ()
    return one if all(row.kind == one.kind and _parameter_types(row, code) == types for row in others) else None


def _is_member(gap: str) -> bool:
    """Whether what comes after this gap is a member of what comes before it."""
    if "." not in gap and ">" not in gap:
        return False
    gap = gap.rstrip()
    return gap.endswith("->") or (gap.endswith(".") and not gap.endswith("..."))


class Uses:
    """The names that a text uses, and its tokens."""

    def __init__(
        self, words: Words, code: Code, directives: Directives, structure: Structure, symbols: dict[int, int]
    ) -> None:
        """The symbols are given by the index of the word that names them."""
        self._words = words
        self._code = code
        self._symbols = symbols
        self._scopes = structure.scopes
        self._scope_starts = [start for start, _ in structure.scopes]
        self._declared: dict[tuple[str, str], list[Declared]] = {}
        for row in structure.declared:
            if row.kind != "method" or row.name.lstrip("~") != row.scope.rpartition("::")[2]:
                self._declared.setdefault((row.name, row.visible), []).append(row)
        self._macros: dict[str, list[int]] = {}
        for macro in directives.macros:
            self._macros.setdefault(words.words[macro.word], []).append(macro.word)
        self._by_name: dict[str, list[Declared]] = {}
        for (name, _), rows in self._declared.items():
            self._by_name.setdefault(name, []).extend(rows)
        self._names = [(name, -1) for name in words.names]
        """The name and the symbol of each use, used or not."""
        self._resolved: dict[tuple[str, str], int] = {}
        numbers = {word: -kind for word, kind in words.kind_of.items() if kind}
        numbers.update(zip(words.names, range(len(words.names)), strict=True))
        self._values = list(map(numbers.__getitem__, words.words))
        """Of each word: its kind, or its index in `_names`."""
        spans = self._local_spans(directives, structure)
        wanted = self._by_name.keys() | self._macros.keys()
        wanted = wanted.union(*(local for _, _, local in spans))
        self._where: dict[str, list[int]] = {name: [] for name in wanted}
        for index in compress(range(len(words.words)), map(wanted.__contains__, words.words)):
            self._where[words.words[index]].append(index)
        self._leave_out(spans)
        for index in structure.parameters:
            self._values[index] = _LOCAL
        for index in symbols:
            self._values[index] = DEFINITION
        self._resolve(directives.indices)

    def _local_spans(self, directives: Directives, structure: Structure) -> list[tuple[int, int, Collection[str]]]:
        """From which word to which which names are local."""
        words, code = self._words, self._code
        spans: list[tuple[int, int, Collection[str]]] = [
            (macro.word + 1, words.at(macro.end), macro.parameters) for macro in directives.macros if macro.parameters
        ]
        for frame in structure.frames:
            spans.append((code.word_from(frame.start), code.word_from(frame.end), frame.locals or ()))
        return spans

    def _leave_out(self, spans: list[tuple[int, int, Collection[str]]]) -> None:
        gaps, values = self._words.gaps, self._values
        left = _WORDS_READ * len(values)
        for first, last, names in spans:
            for name in names:
                indices = self._where[name]
                inside = indices[bisect_left(indices, first) : bisect_left(indices, last)]
                left -= len(inside)
                for index in inside if left > 0 else ():
                    if not _is_member(gaps[index]) and not gaps[index].endswith("::"):
                        values[index] = _LOCAL

    def _resolve(self, in_directives: set[int]) -> None:
        gaps, values = self._words.gaps, self._values
        slots: dict[tuple[str, int], int] = {}
        for name in self._by_name.keys() | self._macros.keys():
            for index in self._where[name]:
                if values[index] < 0:
                    continue
                symbol = self._meaning(name, index, gaps[index], index in in_directives)
                if symbol >= 0:
                    slot = slots.setdefault((name, symbol), len(self._names))
                    if slot == len(self._names):
                        self._names.append((name, symbol))
                    values[index] = slot

    def _meaning(self, name: str, index: int, gap: str, in_directive: bool) -> int:
        """The symbol that a name is at this word; -1 if the file does not say."""
        words = self._words.words
        if name in self._macros:
            return self._symbols[self._macros[name][0]] if len(self._macros[name]) == 1 else -1
        if in_directive:
            return -1  # what a macro means is known where it is used
        if _is_member(gap):
            return self._in_scope(name, index) if index and words[index - 1] == "this" else -1
        if gap.endswith("::"):
            return self._qualified(name, words[index - 1]) if gap == "::" and index else -1
        return self._in_scope(name, index)

    def _in_scope(self, name: str, index: int) -> int:
        _, scope = self._scopes[bisect_right(self._scope_starts, self._code.starts[index]) - 1]
        symbol = self._resolved.get((name, scope))
        if symbol is None:
            around = scope
            declared = self._declared.get((name, around))
            while declared is None and around:
                around = around.rpartition("::")[0]
                declared = self._declared.get((name, around))
            symbol = self._resolved[name, scope] = self._symbol(declared)
        return symbol

    def _qualified(self, name: str, qualifier: str) -> int:
        """The symbol of this name in the only scope of the file that ends with this qualifier."""
        key = (name, f"{qualifier}::")
        symbol = self._resolved.get(key)
        if symbol is None:
            rows = [row for row in self._by_name[name] if row.scope.rpartition("::")[2] == qualifier]
            symbol = self._resolved[key] = self._symbol(rows if len({row.scope for row in rows}) == 1 else None)
        return symbol

    def _symbol(self, declared: list[Declared] | None) -> int:
        one = _only_one(declared, self._code.text) if declared else None
        return self._symbols[one.word] if one is not None else -1

    def listed(self) -> tuple[list[Use], list[int], list[int], list[int], list[tuple[int, int, int]]]:
        """The uses; of each occurrence its line, column and index in them; and all tokens."""
        words = self._words
        numbers: dict[int, int] = {}
        uses: list[Use] = []
        for value in dict.fromkeys(self._values):
            numbers[value] = value if value < 0 else len(uses)
            if value >= 0:
                uses.append(Use(*self._names[value]))
        values = map(numbers.__getitem__, self._values)
        tokens = [token for token in zip(words.starts, words.ends, values, strict=True) if token[2] != _LOCAL]
        ends = words.line_ends
        starts = [start for start, _, value in tokens if value >= 0]
        lines = list(map(bisect_left, repeat(ends), starts))
        columns = [start - ends[line - 1] - 1 for start, line in zip(starts, lines, strict=True)]
        return uses, lines, columns, [value for _, _, value in tokens if value >= 0], tokens
