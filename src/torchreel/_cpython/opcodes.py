"""Opcodes of CPython 3.11: which there are, how arguments are encoded, what code reads by name.

`guards/opcodes.py` has the rules: what each opcode reads and writes. An opcode that is neither there nor in a list here
is not known, and a call that uses it runs eagerly. `native/cpython/` has the layout of frames.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FrameType

OPCODES: dict[str, int] = dict(dis.opmap)

# They only move values: between the stack, the variables of the frame and containers that the same code has just made.
# What they give follows from what they take.
MOVE_VALUES = frozenset(
    ("BUILD_SLICE", "BUILD_STRING", "BUILD_TUPLE", "COPY", "COPY_FREE_VARS", "DELETE_FAST", "LIST_APPEND",
     "LIST_TO_TUPLE", "LOAD_ASSERTION_ERROR", "LOAD_CLOSURE", "LOAD_CONST", "LOAD_FAST", "MAKE_CELL", "POP_TOP",
     "PUSH_NULL", "STORE_FAST", "SWAP")
)  # fmt: skip
# They only choose what runs next. None is compared by identity, so no code of the value runs.
MOVE_CONTROL = frozenset(
    ("CACHE", "EXTENDED_ARG", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD", "NOP",
     "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NONE",
     "POP_JUMP_FORWARD_IF_NOT_NONE", "PRECALL", "RESUME", "RETURN_GENERATOR")
)  # fmt: skip
# They pass on an exception that was raised before, or call the __exit__ of what BEFORE_WITH has checked.
HANDLE_EXCEPTIONS = frozenset(
    ("CHECK_EXC_MATCH", "END_ASYNC_FOR", "POP_EXCEPT", "PUSH_EXC_INFO", "RERAISE", "WITH_EXCEPT_START")
)
# No rule is needed for these.
WITHOUT_RULE = MOVE_VALUES | MOVE_CONTROL | HANDLE_EXCEPTIONS
# Asynchronous code, pattern matching, classes and modules: no rule is written.
NOT_FOLLOWED = frozenset(
    ("IMPORT_STAR", "BEFORE_ASYNC_WITH", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE", "MATCH_MAPPING",
     "MATCH_SEQUENCE", "MATCH_KEYS", "MATCH_CLASS", "PRINT_EXPR", "LOAD_BUILD_CLASS", "SETUP_ANNOTATIONS",
     "PREP_RERAISE_STAR", "CHECK_EG_MATCH", "ASYNC_GEN_WRAP")
)  # fmt: skip

CONTAINS_OP = OPCODES["CONTAINS_OP"]
GET_ITER = OPCODES["GET_ITER"]
_LOAD_GLOBAL = OPCODES["LOAD_GLOBAL"]
_LOAD_NAME = OPCODES["LOAD_NAME"]

# Arguments of BINARY_OP: the first that changes its left operand (+=), and % and %=, which format strings.
IN_PLACE = 13
REMAINDER = (6, 19)

_STEP = 2  # bytes of an instruction


def global_name(code: CodeType, argument: int) -> str:
    """What LOAD_GLOBAL loads. The lowest bit of its argument says that a call follows."""
    return code.co_names[argument >> 1]


def cell_name(code: CodeType, argument: int) -> str:
    """The variable that LOAD_DEREF and its like read and write."""
    name: str = code._varname_from_oparg(argument)  # type: ignore[attr-defined]
    return name


def opcode_at(frame: FrameType | None) -> int:
    """The opcode that a frame is at; -1 before its first."""
    return -1 if frame is None or frame.f_lasti < 0 else int(frame.f_code.co_code[frame.f_lasti])


def is_still_at(frame: FrameType, instruction: int) -> bool:
    """Whether a frame is at this instruction (its f_lasti), or at what that one extends: it may be EXTENDED_ARG."""
    return frame.f_lasti - instruction in (0, _STEP)


def has_handlers(code: CodeType) -> bool:
    """Whether code of a function has `try`, `with` or `finally`: an exception table."""
    return bool(code.co_exceptiontable)


def names_loaded(code: CodeType) -> Iterator[str]:
    """The globals that code loads, those of functions that it defines not among them."""
    for _, opcode, argument in dis._unpack_opargs(code.co_code):  # type: ignore[attr-defined]
        if opcode == _LOAD_GLOBAL:
            yield global_name(code, argument)
        elif opcode == _LOAD_NAME:
            yield code.co_names[argument]


def names_for_getattr(code: CodeType) -> Iterator[str]:
    """The texts of which code puts names together for getattr; "" where a name comes from elsewhere."""
    if "getattr" not in code.co_names:
        return
    instructions = list(dis.get_instructions(code))
    for index, instruction in enumerate(instructions):
        if instruction.opname == "LOAD_GLOBAL" and instruction.argval == "getattr":
            yield from _second_argument(instructions[index + 1 :])


def _second_argument(instructions: list[dis.Instruction]) -> Iterator[str]:
    """The texts in the second argument of a call, unless that is one text. `instructions` begin with its arguments."""
    depth, last, texts = 0, "", []
    for each in instructions:
        if each.opname in ("PRECALL", "CALL") and each.arg == depth:
            break
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            last = ""
            break
        if depth >= 1 and each.opname == "LOAD_CONST" and isinstance(each.argval, str):
            texts.append(each.argval)
        depth += dis.stack_effect(each.opcode, each.arg)
        last = each.opname if depth == 2 else last
    if last in ("BUILD_STRING", "BINARY_OP"):
        yield from [text for text in texts if text] or [""]
    elif last != "LOAD_CONST":
        yield ""
