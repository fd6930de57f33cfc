"""Guards in the making: what was read of which object, and why that object will be alive when it is asked again."""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchreel import _graphs
from torchreel._graphs import NULL
from torchreel.guards.eager import EagerError
from torchreel.guards.types_known import ATOMS, PLAIN, takes_weak_references

_LIBRARY = str(Path(os.__file__).parent)


@dataclass
class Check:
    """One guard: a question to one object, its holder, and the answer that was given first."""

    kind: str
    holder: Any
    parent: int  # the number of the check that leads to the holder, or -1 where a weak reference does
    path: str
    answer: Any = None
    entries: dict[Any, Any] = field(default_factory=dict)


class Checks:
    """Checks in the order of discovery: the check that finds an object comes before those that read from it."""

    def __init__(self) -> None:
        self._all: list[Check] = []
        self._known: dict[tuple[str, int, Any], int] = {}
        self._leads: dict[int, int] = {}  # id of an object -> the check that reads it
        self._paths: dict[int, str] = {}
        self._held: list[Any] = []  # so that an id means one object for as long as the call is followed
        self._asks: dict[Any, tuple[str, Any, tuple[Any, ...], Any]] = {}
        self.met: Callable[[Any], None] | None = None  # is told of each object that a check finds
        self.stand_ins: dict[int, Any] = {}  # by the id of a function: the one it stands for during a recording
        self.hidden: dict[int, str] = {}  # id of a dict -> a key that is ours, and not the program's

    def __len__(self) -> int:
        return len(self._all) + len(self._asks)

    def has_read(self, holder: object) -> bool:
        """Whether something is known of what a container holds."""
        return any((kind, id(holder), None) in self._known for kind in ("entries", "whole", "length"))

    # What leads to an object

    def name(self, value: object, path: str) -> None:
        self._paths.setdefault(id(value), path)

    def path_of(self, value: object) -> str:
        found = self._paths.get(id(value))
        if found is not None:
            return found
        if isinstance(value, (type, types.FunctionType)):
            return value.__qualname__
        return type(value).__name__

    def lead(self, value: object, number: int, path: str) -> None:
        """The check reads this object, so the object is alive when the check holds."""
        if type(value) in ATOMS:
            return
        if id(value) not in self._leads:
            self._leads[id(value)] = number
            self._held.append(value)
            if self.met is not None:
                self.met(value)
        self.name(value, path)
        if isinstance(value, tuple):
            for index, item in enumerate(tuple.__iter__(value)):
                self.lead(item, number, f"{path}[{index}]")
        elif type(value) is types.MethodType:
            self.lead(value.__func__, number, path)
            self.lead(value.__self__, number, path)
        elif isinstance(value, frozenset):
            self.whole(value)  # another one may come to lie at its address

    def leads_to(self, value: object) -> bool:
        return takes_weak_references(value) or id(value) in self._leads

    def finds(self, value: object) -> bool:
        """Whether a check reads it."""
        return id(value) in self._leads

    def _parent(self, holder: object) -> int:
        if id(holder) in self._leads and not takes_weak_references(holder):
            return self._leads[id(holder)]
        if takes_weak_references(holder):
            return -1
        raise EagerError(f"reads a {type(holder).__name__} whose life cannot be followed")

    def _add(self, kind: str, holder: Any, key: Any, path: str, answer: Any = None) -> int:
        found = self._known.get((kind, id(holder), key))
        if found is not None:
            return found
        check = Check(kind, holder, self._parent(holder), path, answer)
        self._held.append(holder)
        self._all.append(check)
        number = len(self._all) - 1
        self._known[kind, id(holder), key] = number
        return number

    # Questions

    def entry(self, holder: dict[Any, Any], key: Any, value: Any, path: str = "") -> None:
        """holder[key] is value, or absent where value is NULL."""
        value = self.stand_ins.get(id(value), value)
        number = self._add("entries", holder, None, path or self.path_of(holder))
        check = self._all[number]
        if key not in check.entries:
            check.entries[key] = value
            self.lead(value, number, _joined(check.path, key))

    def has_entry(self, holder: dict[Any, Any], key: Any) -> bool:
        number = self._known.get(("entries", id(holder), None))
        return number is not None and key in self._all[number].entries

    def forget_entry(self, holder: dict[Any, Any], key: Any) -> None:
        number = self._known.get(("entries", id(holder), None))
        if number is not None:
            self._all[number].entries.pop(key, None)

    def whole(self, holder: Any) -> None:
        """All that a container holds, in its order. What is in it is guarded where it is read."""
        if ("whole", id(holder), None) in self._known:
            return
        path = self.path_of(holder)
        if isinstance(holder, dict):
            ours = self.hidden.get(id(holder))
            answer: list[Any] = [(key, dict.__getitem__(holder, key)) for key in dict.keys(holder) if key != ours]
            if type(holder) is not dict:  # an OrderedDict has an order of its own
                answer = [(key, dict.__getitem__(holder, key)) for key in holder if key != ours]
        else:
            answer = [*_base_of(holder).__iter__(holder)]
        number = self._add("whole", holder, None, path, answer)
        for index, item in enumerate(answer):
            if isinstance(holder, dict):
                self.lead(item[0], number, f"{path}.keys()")
                self.lead(item[1], number, f"{path}[{item[0]!r}]" if type(item[0]) in ATOMS else f"{path}[...]")
            else:
                self.lead(item, number, f"{path}[{index}]")

    def length(self, holder: Any) -> None:
        ours = isinstance(holder, dict) and self.hidden.get(id(holder)) in holder
        self._add("length", holder, None, self.path_of(holder), _length(holder) - ours)

    def type_of(self, kind: type) -> int:
        """What its class and its bases have, by name."""
        version = _graphs.type_version(kind)
        if not version:
            raise EagerError(f"reads attributes of the class {kind.__qualname__}, which cannot be followed")
        return self._add("type", kind, None, kind.__qualname__, version)

    def renew_types(self, kind: type) -> None:
        """An attribute was set and set back: a version tells nothing of this class and of those derived from it."""
        for check in self._all:
            if check.kind == "type" and issubclass(check.holder, kind):
                check.answer = None

    def class_of(self, value: Any, own: dict[str, Any] | None) -> int:
        """The class of an object, and the dict that its attributes are in."""
        number = self._add("class", value, None, self.path_of(value), (type(value), own))
        if own is not None:
            self.lead(own, number, self.path_of(value))
        return number

    def function(self, function: types.FunctionType, code: types.CodeType) -> int:
        answer = (code, function.__defaults__, function.__kwdefaults__)
        number = self._add("function", function, None, function.__qualname__, answer)
        self.lead(function.__globals__, number, _name_of_globals(function.__globals__))
        for part in answer[1:]:
            if part is not None:
                self.lead(part, number, function.__qualname__)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            self.lead(cell, number, name)
        return number

    def function_attribute(self, function: types.FunctionType, name: str) -> None:
        answer = getattr(function, name)  # makes the dict of annotations, if need be
        path = f"{function.__qualname__}.{name}"
        self.lead(answer, self._add("function attribute", function, name, path, (name, answer)), path)

    def cell(self, cell: types.CellType, name: str) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            value = NULL
        self.lead(value, self._add("cell", cell, None, name, value), name)

    def member(self, value: Any, descriptor: Any, answer: Any) -> None:
        """An attribute in __slots__."""
        path = f"{self.path_of(value)}.{descriptor.__name__}"
        self.lead(answer, self._add("member", value, descriptor.__name__, path, (descriptor, answer)), path)

    def reference(self, reference: Any) -> None:
        """What a weak reference refers to."""
        number = self._add("weakref", reference, None, self.path_of(reference))
        self.lead(reference(), number, self.path_of(reference))

    def ask(self, path: str, function: Any, args: tuple[Any, ...], answer: Any) -> None:
        """A C function without effects is called again at each check: the dearest kind of guard."""
        self._asks.setdefault((path, id(function), tuple(map(id, args))), (path, function, args, answer))
        self._held.append((function, args))

    def globals_of(self, function: types.FunctionType, names: dict[str, Any]) -> None:
        """The globals of a function: its module keeps them alive, or the function does."""
        if id(names) in self._leads:
            return
        module = sys.modules.get(names.get("__name__", ""))
        if module is not None and _graphs.instance_dict(module) is names:
            self.lead(names, self.class_of(module, names), _name_of_globals(names))
        elif not self.leads_to(function):
            raise EagerError("reads globals of a function whose life cannot be followed")

    def builtins_of(self, names: dict[str, Any]) -> None:
        if names is not vars(builtins):
            raise EagerError("has builtins of its own")
        if id(names) not in self._leads:
            self.lead(names, self.class_of(builtins, names), "builtins")

    # The end

    def write(self, tensors: list[tuple[torch.Tensor, int, Any]]) -> _graphs.PythonGuards:
        """`tensors` are those of others that were asked something, each with a mask and the state that it was in."""
        native = _graphs.PythonGuards()
        owners: dict[int, int] = {}

        def owner_of(value: Any, path: str) -> int:
            if not takes_weak_references(value):
                return -1
            if id(value) not in owners:
                owners[id(value)] = native.add_owner(value, path)
            return owners[id(value)]

        numbers: list[int] = []  # one check here may be several there
        for check in self._all:
            parent = -1 if check.parent < 0 else numbers[check.parent]
            numbers.append(_write(native, check, owner_of(check.holder, check.path), parent))
        for tensor, mask, state in tensors:
            path = self.path_of(tensor)
            native.add_tensor(owner_of(tensor, path), -1, path, tensor, mask, state)
        for path, function, args, answer in self._asks.values():
            native.add_ask(path, function, args, answer)
        return native


def _write(native: _graphs.PythonGuards, check: Check, owner: int, parent: int) -> int:
    common = (owner, parent, check.path)
    holder, answer = check.holder, check.answer
    if check.kind == "entries":
        number = native.add_entries(*common, holder, list(check.entries.items()), NULL)
    elif check.kind == "whole":
        number = native.add_whole(*common, holder, answer)
    elif check.kind == "length":
        number = native.add_length(*common, holder, answer)
    elif check.kind == "type" and answer is None:
        number = native.add_class_attributes(*common, holder)
    elif check.kind == "type":
        number = native.add_type(*common, holder, answer)
    elif check.kind == "class":
        number = native.add_class(*common, holder, *answer)
    elif check.kind == "function":
        number = native.add_function(*common, holder, *answer)
    elif check.kind == "function attribute":
        name, value = answer
        number = native.add_function_attribute(*common, holder, name, value)
    elif check.kind == "cell":
        number = native.add_cell(*common, holder, answer, NULL)
    elif check.kind == "weakref":
        number = native.add_weakref(*common, holder)
    else:
        descriptor, value = answer
        number = native.add_member(*common, holder, descriptor, value, NULL)
    if number < 0:
        raise EagerError(f"reads {check.path}, which cannot be guarded")
    return number


def _name_of_globals(names: dict[str, Any]) -> str:
    """Nothing for the user's own code, whose names need no more; for a library, its module."""
    file, name = names.get("__file__"), names.get("__name__")
    own = type(file) is not str or not ("-packages" in file or file.startswith(_LIBRARY))
    return "" if own or type(name) is not str else name


def _joined(path: str, key: Any) -> str:
    if type(key) is not str:
        return f"{path}[{key!r}]" if type(key) in PLAIN else f"{path}[...]"
    return f"{path}.{key}" if path else key


def _length(holder: Any) -> int:
    return int(_base_of(holder).__len__(holder))


def _base_of(holder: Any) -> Any:
    """The class of Python that holds its items, whatever a class derived from it says."""
    for base in (list, dict, set, frozenset, tuple):
        if isinstance(holder, base):
            return base
    raise EagerError(f"reads the contents of a {type(holder).__name__}")
