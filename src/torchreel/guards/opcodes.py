"""What each opcode of CPython 3.11 reads and writes. `peek(frame, 1)` is the top of the stack.

A rule gives what to tell the result to, or nothing. `_cpython/opcodes.py` lists those that need no rule.
"""

from __future__ import annotations

import copy
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy
import torch

from torchreel._cpython import opcodes
from torchreel._graphs import NULL, local, peek
from torchreel._torch.c_functions import CONTEXT_MANAGERS
from torchreel.guards import attributes
from torchreel.guards.eager import EagerError, WriteError
from torchreel.guards.operations import (
    CONTAINERS,
    Told,
    advance,
    check_array_write,
    contains,
    is_own_iterator,
    iterate,
    look_at_item,
    operate,
    read_item,
    read_text,
    refuse_equal,
    refuse_tensors_in,
    store_item,
)
from torchreel.guards.types_known import ATOMS, PLAIN, is_python_class

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

Rule = Callable[["FollowedCall", Any, int], Told]


def _load_global(call: FollowedCall, frame: Any, argument: int) -> Told:
    _read_name(call, frame, opcodes.global_name(frame.f_code, argument))
    return None


def _load_name(call: FollowedCall, frame: Any, argument: int) -> Told:
    name = frame.f_code.co_names[argument]
    if name not in frame.f_locals:
        _read_name(call, frame, name)
    return None


def _read_name(call: FollowedCall, frame: Any, name: str) -> None:
    names = frame.f_globals
    if type(names) is not dict:
        raise EagerError("has globals that are no plain dict")
    call.checks.globals_of(call.frame_function(frame), names)
    found = names.get(name, NULL)
    call.guard_entry(names, name, found)
    if found is NULL:
        builtins = frame.f_builtins
        call.checks.builtins_of(builtins)
        call.guard_entry(builtins, name, builtins.get(name, NULL), "builtins")


def _load_deref(call: FollowedCall, frame: Any, argument: int) -> Told:
    cell = local(frame, argument)
    if not call.is_fresh(cell):
        if call.writes is not None and call.writes.has_set(cell):
            return None
        call.checks.cell(cell, opcodes.cell_name(frame.f_code, argument))
        if cell_value(cell) is not NULL and call.is_given(cell_value(cell)):
            call.note_also(cell_value(cell))
    return None


def cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return NULL


def _store_deref(call: FollowedCall, frame: Any, argument: int) -> Told:
    cell = local(frame, argument)
    if call.is_fresh(cell):
        return None
    if call.writes is None:
        raise WriteError(f"sets {opcodes.cell_name(frame.f_code, argument)}, a variable of the function around it")
    if not call.writes.has_set(cell) and cell_value(cell) is peek(frame, 1):  # perhaps changed in place
        return _load_deref(call, frame, argument)
    call.writes.set_variable(cell)
    return None


def _store_global(call: FollowedCall, frame: Any, argument: int) -> Told:
    call.checks.globals_of(call.frame_function(frame), frame.f_globals)
    call.store(frame.f_globals, frame.f_code.co_names[argument])
    return None


def _store_name(call: FollowedCall, frame: Any, argument: int) -> Told:
    if frame.f_locals is frame.f_globals:
        raise EagerError("runs a module")
    return None


def _load_attr(call: FollowedCall, frame: Any, argument: int) -> Told:
    return attributes.read(call, peek(frame, 1), frame.f_code.co_names[argument])


def _store_attr(call: FollowedCall, frame: Any, argument: int) -> Told:
    attributes.store(call, peek(frame, 1), frame.f_code.co_names[argument], peek(frame, 2))
    return None


def _delete_attr(call: FollowedCall, frame: Any, argument: int) -> Told:
    attributes.delete(call, peek(frame, 1), frame.f_code.co_names[argument])
    return None


def _delete_subscr(call: FollowedCall, frame: Any, argument: int) -> Told:
    if not call.is_fresh(peek(frame, 2)):
        raise WriteError(f"deletes an item of a {type(peek(frame, 2)).__name__}")
    return None


def _refuse(what: str) -> Rule:
    def rule(call: FollowedCall, frame: Any, argument: int) -> Told:
        raise EagerError(what)

    return rule


def _binary_subscr(call: FollowedCall, frame: Any, argument: int) -> Told:
    return read_item(call, peek(frame, 2), peek(frame, 1))


def _store_subscr(call: FollowedCall, frame: Any, argument: int) -> Told:
    store_item(call, peek(frame, 2), peek(frame, 1), peek(frame, 3))
    return None


def _binary_op(call: FollowedCall, frame: Any, argument: int) -> Told:
    left, right = peek(frame, 2), peek(frame, 1)
    if argument >= opcodes.IN_PLACE and isinstance(left, (list, dict, set, bytearray)) and not call.is_fresh(left):
        raise WriteError(f"changes a {type(left).__name__} in place")
    if argument >= opcodes.IN_PLACE and isinstance(left, numpy.ndarray):
        check_array_write(call, left)
    if argument in opcodes.REMAINDER and isinstance(left, (str, bytes)):
        read_text(call, right)
    return operate(call, left, right)


def _compare_op(call: FollowedCall, frame: Any, argument: int) -> Told:
    refuse_tensors_in(peek(frame, 2), peek(frame, 1))
    for value, other in ((peek(frame, 2), peek(frame, 1)), (peek(frame, 1), peek(frame, 2))):
        known = isinstance(value, (torch.Tensor, *CONTAINERS)) or type(other) in PLAIN
        if call.is_given(value) and not known:
            call.refuse_identity(value)
    return operate(call, peek(frame, 2), peek(frame, 1))


def _contains_op(call: FollowedCall, frame: Any, argument: int) -> Told:
    contains(call, peek(frame, 1), peek(frame, 2))
    return None


def _is_op(call: FollowedCall, frame: Any, argument: int) -> Told:
    left, right = peek(frame, 2), peek(frame, 1)
    if frame.f_globals is not vars(copy):  # which asks whether a copy is the object itself, and both are plain
        refuse_equal(left, right)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, torch.Tensor) and type(other) not in PLAIN:
            call.compare_identity(one, other)
        elif not isinstance(other, type):
            call.needs_identity(one, other)
    tensors_only = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
    if call.is_given(left) and call.is_given(right) and not tensors_only:
        raise EagerError("asks whether two of its arguments are one")
    return None


def _truth(call: FollowedCall, frame: Any, argument: int) -> Told:
    call.guard_true(peek(frame, 1))
    return None


def _unary(call: FollowedCall, frame: Any, argument: int) -> Told:
    return operate(call, peek(frame, 1))


def _get_iter(call: FollowedCall, frame: Any, argument: int) -> Told:
    return iterate(call, peek(frame, 1))


def _for_iter(call: FollowedCall, frame: Any, argument: int) -> Told:
    advance(call, peek(frame, 1))
    return None


def _send(call: FollowedCall, frame: Any, argument: int) -> Told:
    if not call.is_fresh(peek(frame, 2)):
        raise WriteError("advances a generator that was made before the call")
    return None


def _unpack(call: FollowedCall, frame: Any, argument: int) -> Told:
    iterate(call, peek(frame, 1))
    return None


def _make(call: FollowedCall, frame: Any, argument: int) -> Told:
    return call.make


def _build_set(call: FollowedCall, frame: Any, argument: int) -> Told:
    for index in range(argument):
        call.check_key(peek(frame, 1 + index))
    return call.make


def _build_map(call: FollowedCall, frame: Any, argument: int) -> Told:
    for index in range(argument):
        call.check_key(peek(frame, 2 + 2 * index))
    return call.make


def _set_add(call: FollowedCall, frame: Any, argument: int) -> Told:
    call.check_key(peek(frame, 1))
    return None


def _map_add(call: FollowedCall, frame: Any, argument: int) -> Told:
    call.check_key(peek(frame, 2))
    return None


_TESTED = frozenset(
    ("__contains__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__instancecheck__",
     "__subclasscheck__", "__subclasshook__")
)  # fmt: skip


def _return_value(call: FollowedCall, frame: Any, argument: int) -> Told:
    """What is handed to C code, which may look into it: to sorted() by its key, to `in` by __contains__."""
    value = peek(frame, 1)
    if type(value) in ATOMS:
        return None
    # C code that the caller's opcode runs may have called this one.
    name, opcode = frame.f_code.co_name, opcodes.opcode_at(frame.f_back)
    if name in _TESTED or opcode == opcodes.CONTAINS_OP:
        call.guard_true(value)
    elif name == "keys":
        iterate(call, value)
    elif name == "__iter__" or opcode == opcodes.GET_ITER:
        is_own_iterator(call, value)
    return _yield_value(call, frame, argument)


def _yield_value(call: FollowedCall, frame: Any, argument: int) -> Told:
    value, back = peek(frame, 1), frame.f_back
    if type(value) in ATOMS:
        return None
    reader = call.readers.get(frame.f_code)
    if reader is not None:
        reader(call, value)
    if back is not None and opcodes.is_still_at(back, call.looking.get(id(back), -9)):
        look_at_item(call, value)
    return None


def _raise(call: FollowedCall, frame: Any, argument: int) -> Told:
    """An exception that is raised gets a traceback and a context."""
    if call.handled is not None:
        raise EagerError("raises an exception while its caller handles one")
    call.checks.ask("sys.exception()", sys.exception, (), None)
    value = peek(frame, argument) if argument else None
    if isinstance(value, type):
        call.guard_type(value)
    if isinstance(value, BaseException) and not call.is_fresh(value):
        raise EagerError(f"raises a {type(value).__name__} that was made before the call")
    return None


def _format_value(call: FollowedCall, frame: Any, argument: int) -> Told:
    read_text(call, peek(frame, 2 if argument & 4 else 1))
    return None


def _before_with(call: FollowedCall, frame: Any, argument: int) -> Told:
    value = peek(frame, 1)
    if not is_python_class(type(value)) and type(value) not in CONTEXT_MANAGERS:
        raise EagerError(f"enters a {type(value).__module__}.{type(value).__name__}")
    call.guard_class(value)
    return None


def _import_name(call: FollowedCall, frame: Any, argument: int) -> Told:
    name, level = frame.f_code.co_names[argument], peek(frame, 2)
    builtins = frame.f_builtins
    call.checks.builtins_of(builtins)
    call.guard_entry(builtins, "__import__", builtins["__import__"], "builtins")
    if level:
        call.checks.globals_of(call.frame_function(frame), frame.f_globals)
        package = frame.f_globals.get("__package__", NULL)
        call.guard_entry(frame.f_globals, "__package__", package)
        if type(package) is not str:
            raise EagerError(f"imports {name}")
        name = ".".join(filter(None, (package.rsplit(".", level - 1)[0], name)))
    call.checks.class_of(sys, vars(sys))
    call.checks.entry(vars(sys), "modules", sys.modules, "sys")
    for part in dict.fromkeys((name, name.split(".")[0])):
        if part not in sys.modules:
            raise EagerError(f"imports {name} for the first time")
        call.guard_entry(sys.modules, part, sys.modules[part], "sys.modules")
    return None


def _import_from(call: FollowedCall, frame: Any, argument: int) -> Told:
    module, name = peek(frame, 1), frame.f_code.co_names[argument]
    if type(module) is types.ModuleType and name not in vars(module) and "__getattr__" not in vars(module):
        raise EagerError(f"imports {name}, which is no attribute of its package")
    return attributes.read(call, peek(frame, 1), frame.f_code.co_names[argument])


def _call(call: FollowedCall, frame: Any, argument: int) -> Told:
    names = call.native.take_names() or ()
    values = [peek(frame, argument - index) for index in range(argument)]
    function = peek(frame, argument + 2)
    if function is not NULL:
        values.insert(0, peek(frame, argument + 1))
    else:
        function = peek(frame, argument + 1)
    split = len(values) - len(names)
    return _invoke(call, function, values[:split], dict(zip(names, values[split:], strict=True)))


def _call_function_ex(call: FollowedCall, frame: Any, argument: int) -> Told:
    keywords = peek(frame, 1) if argument & 1 else {}
    function, values = peek(frame, 3 if argument & 1 else 2), peek(frame, 2 if argument & 1 else 1)
    iterate(call, values)
    if not isinstance(values, (tuple, list)):
        if type(function) is types.FunctionType:
            return _invoke(call, function, [], {})  # Python, which is followed: its arguments do not matter here
        raise EagerError(f"calls a function with *{type(values).__name__}")
    if type(keywords) is not dict:
        call.guard_whole(keywords)
    return _invoke(call, function, list(values), dict(keywords))


def _invoke(call: FollowedCall, function: Any, values: list[Any], keywords: dict[str, Any]) -> Told:
    from torchreel.guards.calls import invoke

    return invoke(call, function, values, keywords)


BY_NAME: dict[str, Rule] = {
    "LOAD_GLOBAL": _load_global,
    "LOAD_NAME": _load_name,
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_attr,
    "LOAD_DEREF": _load_deref,
    "LOAD_CLASSDEREF": _load_deref,
    "BINARY_SUBSCR": _binary_subscr,
    "BINARY_OP": _binary_op,
    "COMPARE_OP": _compare_op,
    "CONTAINS_OP": _contains_op,
    "IS_OP": _is_op,
    **dict.fromkeys(("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_INVERT"), _unary),
    **dict.fromkeys(
        ("UNARY_NOT", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_TRUE",
         "POP_JUMP_BACKWARD_IF_FALSE", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"),
        _truth,
    ),
    **dict.fromkeys(("GET_ITER", "GET_YIELD_FROM_ITER"), _get_iter),
    "FOR_ITER": _for_iter,
    "SEND": _send,
    **dict.fromkeys(
        ("UNPACK_SEQUENCE", "UNPACK_EX", "GET_LEN", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE"), _unpack
    ),
    "CALL": _call,
    "CALL_FUNCTION_EX": _call_function_ex,
    "KW_NAMES": _make,  # the native follower takes it
    "STORE_ATTR": _store_attr,
    "STORE_SUBSCR": _store_subscr,
    "STORE_GLOBAL": _store_global,
    "STORE_DEREF": _store_deref,
    "STORE_NAME": _store_name,
    "DELETE_ATTR": _delete_attr,
    "DELETE_SUBSCR": _delete_subscr,
    "DELETE_GLOBAL": _refuse("deletes a global"),
    "DELETE_DEREF": _store_deref,
    "DELETE_NAME": _store_name,
    "RETURN_VALUE": _return_value,
    "YIELD_VALUE": _yield_value,
    "RAISE_VARARGS": _raise,
    **dict.fromkeys(("BUILD_LIST", "BUILD_CONST_KEY_MAP", "MAKE_FUNCTION"), _make),
    "BUILD_SET": _build_set,
    "BUILD_MAP": _build_map,
    "SET_ADD": _set_add,
    "MAP_ADD": _map_add,
    "IMPORT_NAME": _import_name,
    "IMPORT_FROM": _import_from,
    "BEFORE_WITH": _before_with,
    "FORMAT_VALUE": _format_value,
}  # fmt: skip


def rules_of(numbers: Mapping[str, int]) -> dict[int, Rule]:
    """The rules by number of opcode. One that is in no list is not known: a call that uses it runs eagerly."""
    return {
        number: BY_NAME.get(name) or _refuse(f"uses {name}, which is not followed")
        for name, number in numbers.items()
        if name not in opcodes.WITHOUT_RULE
    }


RULES = rules_of(opcodes.OPCODES)
