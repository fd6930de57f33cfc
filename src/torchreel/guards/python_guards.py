"""The guards of a recording: do they hold, and if not, what changed."""

from __future__ import annotations

import re
from typing import Any

from torchreel import _graphs

_OFTEN = 3  # changes one after the other, with no call in between that could be replayed
_LONG = 60  # characters of a value in a sentence
_HELD = re.compile(r"\.?_(?:parameters|buffers|modules)(?:\.|\[')([^.'\]]+)(?:'\])?")
_OF_LIBRARIES = ("torch.", "len(torch.", "builtins.", "sys.", "importlib.")
_HIDDEN = (".__class__", ".__dict__", ".__code__", ".__defaults__", ".__kwdefaults__")


class PythonGuards:
    """`after` are the guards of the recording before, whose counts of changes go on."""

    def __init__(self, native: _graphs.PythonGuards, after: PythonGuards | None = None) -> None:
        self.native = native
        self._streaks: dict[str, int] = {} if after is None else after._counts
        self._counts: dict[str, int] = {}

    def changed(self) -> str | None:
        """A sentence that says what changed, from which value to which; empty if all guards hold."""
        quiet = self.native.times_held > 0
        if self.native.hold():
            return None
        differences = [(_pretty(path), was, now) for path, was, now in self.native.differences()]
        before = {} if quiet else self._streaks
        self._counts = {path: before.get(path, 0) + 1 for path, _, _ in differences}
        if not differences:
            return "Something that the function reads has changed."
        often = self.volatile
        if often:
            return (
                f"{_names(often)} changed before each of the last {_OFTEN} calls, so that none could be replayed: make "
                "it an argument or a tensor that is changed in place, or change it less often."
            )
        return _sentence(*differences[0])

    @property
    def volatile(self) -> list[str]:
        """What changes before each call, so that recording is of no use."""
        return [path for path, count in self._counts.items() if count >= _OFTEN]

    def paths(self) -> list[str]:
        """What is guarded, for people: without what torch's own Python reads of itself."""
        paths = (_pretty(path) for path in self.native.paths() if not path.endswith(_HIDDEN))
        found = dict.fromkeys(path for path in paths if not path.startswith(_OF_LIBRARIES))
        return list(found)


def _pretty(path: str) -> str:
    return _HELD.sub(r".\1", path).removeprefix(".")


def _names(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else ", ".join(paths[:-1]) + " and " + paths[-1]


def _sentence(path: str, was: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    if was == ("freed object",) and not now:
        return f"{path} was freed."
    if was == ("tensor",):
        return f"{path} is another kind of tensor now: requires_grad, grad, hooks, sizes or attributes of its own."
    if was == ("class",):
        return f"An attribute of the class {path} was set."
    if was == now:
        return f"{path} was one {was[0]} and is another." if was else f"{path} has changed."
    return f"{path} was {_described(was)} and is {_described(now)}."


def _described(value: tuple[Any, ...]) -> str:
    """As the native side shows it: nothing, the name of a type, or that with a plain value."""
    if not value:
        return "absent"
    if len(value) == 1:
        return f"a {value[0]}"
    text = repr(value[1])
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."
