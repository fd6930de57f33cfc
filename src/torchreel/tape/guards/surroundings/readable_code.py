"""What a function's code can read by name: the globals that it loads, and the attributes that it asks for."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchreel._cpython.opcodes import names_for_getattr, names_loaded

_known: dict[types.CodeType, CodeNames] = {}
_MOST_KNOWN = 10_000


@dataclass(frozen=True)
class CodeNames:
    globals: frozenset[str]
    others: frozenset[str]  # attributes and methods; and texts
    texts: frozenset[str]  # which may be keys, or names for getattr
    made: frozenset[str] = frozenset()  # parts of names that are put together for getattr; "" if it may be any

    def joined(self, more: CodeNames) -> CodeNames:
        return CodeNames(
            self.globals | more.globals, self.others | more.others, self.texts | more.texts, self.made | more.made
        )


def names_of(code: types.CodeType) -> CodeNames:
    """The names that code reads, with those of the functions that it defines."""
    found = _known.get(code)
    if found is None:
        if len(_known) > _MOST_KNOWN:
            _known.clear()
        read = frozenset(names_loaded(code))
        texts = frozenset(text for text in _texts(code.co_consts) if text.isidentifier())
        found = CodeNames(read, texts.union(code.co_names), texts, frozenset(names_for_getattr(code)))
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                found = found.joined(names_of(inner))
        _known[code] = found
    return found


def _texts(constants: Iterable[object]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from _texts(constant)
