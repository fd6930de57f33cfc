"""What a function's code can read by name: the globals that it loads, and the attributes that it asks for."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_NAME = dis.opmap["LOAD_NAME"]
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
    """With those of the functions that are defined within."""
    found = _known.get(code)
    if found is None:
        if len(_known) > _MOST_KNOWN:
            _known.clear()
        read = frozenset(_globals(code))
        texts = frozenset(text for text in _texts(code.co_consts) if text.isidentifier())
        found = CodeNames(read, texts.union(code.co_names), texts, frozenset(_made_names(code)))
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


def _made_names(code: types.CodeType) -> Iterator[str]:
    """What getattr is given, where that is put together of texts; "" where it comes from elsewhere."""
    if "getattr" not in code.co_names:
        return
    steps = list(dis.get_instructions(code))
    for index, step in enumerate(steps):
        if step.opname == "LOAD_GLOBAL" and step.argval == "getattr":
            yield from _second_argument(steps[index + 1 :])


def _second_argument(steps: list[dis.Instruction]) -> Iterator[str]:
    """Of the call that these end with, from its first argument on: its texts, unless it is just one of them."""
    depth, last, texts = 0, "", []
    for step in steps:
        if step.opname in ("PRECALL", "CALL") and step.arg == depth:
            break
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            last = ""
            break
        if depth >= 1 and step.opname == "LOAD_CONST" and isinstance(step.argval, str):
            texts.append(step.argval)
        depth += dis.stack_effect(step.opcode, step.arg)
        last = step.opname if depth == 2 else last
    if last in ("BUILD_STRING", "BINARY_OP"):
        yield from [text for text in texts if text] or [""]
    elif last != "LOAD_CONST":
        yield ""


def _globals(code: types.CodeType) -> Iterator[str]:
    for _, operation, argument in dis._unpack_opargs(code.co_code):  # type: ignore[attr-defined]
        if operation == _GLOBAL:
            yield code.co_names[argument >> 1]  # the lowest bit says that a call follows
        elif operation == _NAME:
            yield code.co_names[argument]
