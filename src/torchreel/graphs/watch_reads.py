"""What the bytecode of a function reads from outside of it: globals, closed-over variables and `self`, and attributes
of these. One pass from top to bottom, without control flow: it may find what a call does not read, never the reverse.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

GLOBAL, CLOSED, SELF, IMPORT = "global", "closed", "self", "import"


class Read(NamedTuple):
    """`config.model.scale`: where it begins (with the name there), and the attributes from there on."""

    root: str
    name: str
    attributes: tuple[str, ...] = ()


class Reads(NamedTuple):
    read: tuple[Read, ...]
    written: tuple[Read, ...]  # attributes and globals that it sets


_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST", "IMPORT_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_GLOBAL", "STORE_ATTR")
_FOLLOWED = frozenset((*_LOADS, *_ATTRIBUTES, *_STORES, "COPY"))
_CACHE = dis.opmap["CACHE"]
_NAMES = dis.opname


@functools.lru_cache(maxsize=4096)
def reads(code: CodeType) -> Reads:
    """Of the code and of the functions that are written inside of it."""
    found = _Pass(code)
    for instruction, argument in _instructions(code):
        if instruction in _FOLLOWED:
            found.take(instruction, argument)
        else:
            found.top = None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = reads(constant)
            found.read.update(dict.fromkeys(read for read in map(found.outer, inner.read) if read))
            found.written.update(dict.fromkeys(read for read in map(found.outer, inner.written) if read))
    return Reads(tuple(found.read), tuple(found.written))


def _instructions(code: CodeType) -> Iterator[tuple[str, int]]:
    extended = 0
    content = code.co_code
    for at in range(0, len(content), 2):
        instruction, argument = content[at], content[at + 1] | extended
        if instruction == _CACHE:
            continue
        extended = argument << 8 if instruction == dis.EXTENDED_ARG else 0
        if not extended:
            yield _NAMES[instruction], argument


class _Pass:
    """The state of one pass: what the last instruction left on top of the stack, if it is known."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self.read: dict[Read, None] = {}
        self.written: dict[Read, None] = {}
        self._self = code.co_varnames[0] if code.co_argcount and code.co_varnames[0] == "self" else None
        self._aliases: dict[str, Read | None] = {}  # local variables that are one of these; None: several things
        self.top: Read | None = None
        self._swapped: Read | None = None  # what self.calls += 1 will set

    def take(self, instruction: str, argument: int) -> None:
        top, self.top = self.top, None
        if instruction in _LOADS:
            self.top = self._loaded(instruction, argument)
            self._note(self.top)
        elif instruction in _ATTRIBUTES:
            if top is not None:
                self.top = top._replace(attributes=(*top.attributes, self._code.co_names[argument]))
                self._note(self.top)
        elif instruction == "COPY" and argument == 1:
            self.top = self._swapped = top
        else:
            self._store(instruction, argument, top)

    def _store(self, instruction: str, argument: int, top: Read | None) -> None:
        if instruction in ("STORE_FAST", "STORE_DEREF"):
            name: str = self._code._varname_from_oparg(argument)  # type: ignore[attr-defined]
            if name in self._code.co_freevars:
                self.written[Read(CLOSED, name)] = None
            self._aliases[name] = top if name not in self._aliases else None
        elif instruction == "STORE_GLOBAL":
            self.written[Read(GLOBAL, self._code.co_names[argument])] = None
        elif instruction == "STORE_ATTR":
            owner = top or self._swapped
            if owner is not None:
                attributes = (*owner.attributes, self._code.co_names[argument])
                self.written[owner._replace(attributes=attributes)] = None
            self._swapped = None

    def _note(self, read: Read | None) -> None:
        if read is not None:
            self.read[read] = None

    def _loaded(self, instruction: str, argument: int) -> Read | None:
        code = self._code
        if instruction == "LOAD_GLOBAL":
            return Read(GLOBAL, code.co_names[argument >> 1])
        if instruction == "LOAD_NAME":
            return Read(GLOBAL, code.co_names[argument])
        if instruction == "IMPORT_NAME":
            return Read(IMPORT, code.co_names[argument])
        name: str = code._varname_from_oparg(argument)  # type: ignore[attr-defined]
        return self._variable(name)

    def _variable(self, name: str) -> Read | None:
        if name == self._self:
            return Read(SELF, name)
        if name in self._code.co_freevars:
            return Read(CLOSED, name)
        return self._aliases.get(name)

    def outer(self, read: Read) -> Read | None:
        """What a function inside of this code reads, as this code has it."""
        if read.root != CLOSED:
            return read if read.root != SELF else None  # its own self is another object
        start = self._variable(read.name)
        return None if start is None else start._replace(attributes=start.attributes + read.attributes)
