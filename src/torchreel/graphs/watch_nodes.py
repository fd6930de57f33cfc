"""The objects whose names are watched, each with all names that anybody reads of it, in the order of discovery."""

from __future__ import annotations

import types
from typing import Any

from torchreel import _graphs
from torchreel.graphs.watch_objects import can_be_followed, can_change


class Node:
    """Names in one dict: of an object, of a class, or the globals of a function."""

    def __init__(self, kind: str, owner: Any, content: Any, label: str, mortal: bool) -> None:
        self.kind = kind
        self.owner = owner
        self.content = content
        self.label = label
        self.mortal = mortal
        self.names: dict[str, None] = {}

    def add(self, *names: str) -> None:
        self.names.update(dict.fromkeys(names))


class Nodes:
    """Holds what it found, so it is to be let go of when the watch is written."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._functions: dict[int, tuple[types.FunctionType, bool]] = {}
        self._members: dict[tuple[int, str], tuple[Any, str, Any]] = {}

    def add_instance(self, thing: Any, label: str, mortal: bool) -> Node | None:
        """Nothing where the object could only be followed by keeping it alive."""
        node = self._nodes.get(id(thing))
        if node is not None:
            node.mortal = node.mortal and mortal
            return node
        if not can_be_followed(thing):
            return None
        return self._nodes.setdefault(id(thing), Node("instance", thing, thing, label, mortal))

    def add_namespace(self, content: dict[str, Any], owner: Any, label: str) -> Node:
        return self._nodes.setdefault(id(content), Node("names", owner, content, label, False))

    def add_class(self, kind: type, name: str) -> None:
        if can_change(kind):
            self._nodes.setdefault(id(kind), Node("class", kind, kind, kind.__name__, False)).add(name)

    def add_function(self, function: types.FunctionType, mortal: bool) -> None:
        _, before = self._functions.get(id(function), (function, True))
        self._functions[id(function)] = function, before and mortal

    def add_member(self, thing: Any, label: str, descriptor: Any, name: str) -> bool:
        """An attribute of __slots__. False as for an instance."""
        if not can_be_followed(thing):
            return False
        self._members[id(thing), name] = thing, label, descriptor
        return True

    def label(self, thing: Any) -> str | None:
        node = self._nodes.get(id(thing))
        return None if node is None else node.label

    def write(self, watch: _graphs.Watch) -> None:
        for node in self._nodes.values():
            number = watch.add_owner(node.owner, node.label, node.mortal)
            if node.kind == "instance":
                watch.add_instance(number, node.content, list(node.names))
            elif node.kind == "class":
                watch.add_class(number, node.content, list(node.names))
            else:
                watch.add_names(number, node.content, list(node.names))
        for function, mortal in self._functions.values():
            number = watch.add_owner(function, function.__qualname__, mortal)
            watch.add_function(number, function)
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                watch.add_cell(number, cell, name)
        for (_, name), (thing, label, descriptor) in self._members.items():
            watch.add_member(watch.add_owner(thing, label, True), thing, descriptor, name)
