"""The watch: whether Python's side of a recorded function is as it was.

What Python itself does inside of a graphed function happens only while recording. So what it read there is watched:
the state of modules and optimizers, globals, closed-over variables, default arguments, and attributes of objects that
the function names. Asked before each replay, in C++; nothing of the user's is kept alive, and no code of theirs is run.
"""

from __future__ import annotations

import re
import sys
import types
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from torchreel import _graphs
from torchreel.graphs.watch_calls import Calls, Ran
from torchreel.graphs.watch_nodes import Nodes
from torchreel.graphs.watch_objects import instance_dict
from torchreel.graphs.watch_reach import Reach

_OFTEN = 3  # changes one after the other, with no call in between that could be replayed
_LONG = 60  # characters of a value in a sentence
_HELD = re.compile(r"\._(?:parameters|buffers|modules)\['([^']+)'\]")
_HIDDEN = (".__class__", ".__dict__", ".__code__", ".__defaults__", ".__kwdefaults__")


class Watch:
    """Made right after a recording.

    `functions` are those that ran meanwhile, as `functions_run()` gives them. With an empty list, what the function
    reaches by names is taken instead. `after` is the watch of the recording before, whose counts go on.
    """

    def __init__(
        self,
        function: Any,
        modules: Iterable[torch.nn.Module] = (),
        optimizers: Iterable[torch.optim.Optimizer] = (),
        functions: Calls | Iterable[types.FunctionType] = (),
        after: Watch | None = None,
    ) -> None:
        self.native = _graphs.Watch()
        self._function = _weakly(function)
        self._modules = [weakref.ref(module) for module in modules]
        self._optimizers = [weakref.ref(optimizer) for optimizer in optimizers]
        self._born: list[weakref.ref[Any]] = []
        if isinstance(functions, Calls):
            self._modules += [weakref.ref(module) for module in functions.modules()]
            self._born = [weakref.ref(module) for module in functions.born()]
            self._ran = [_Ran(ran) for ran in functions.functions()]
        else:
            self._ran = [_Ran(Ran(one.__code__, one.__globals__, [one], [])) for one in functions]
        self._streaks: dict[str, int] = {} if after is None else after._counts
        self._counts: dict[str, int] = {}
        self._write()

    def _write(self) -> None:
        nodes = Nodes()
        reach = Reach(nodes, not self._ran, _alive(self._born))
        function = self._function()
        if function is not None:
            reach.add_entry(function)
        for ran in self._ran:
            ran.add_to(reach, function)
        reach.add_modules(_alive(self._modules))
        for optimizer in _alive(self._optimizers):
            reach.add_optimizer(optimizer)
        self.native.clear()
        nodes.write(self.native)
        self._unwatched = list(reach.unwatched)
        # From here on a change is a change.
        self.native.same()

    def changed(self) -> str | None:
        """Nothing if all is as it was, else a sentence: what changed, from what to what."""
        quiet = self.native.times_same > 1  # the first is that of _write()
        if self.native.same():
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

    def numbers_changed(self) -> list[str]:
        """Sentences on plain values that are others now.

        Asked after a call, with rebase() before it, these are what the function itself counts: a replay would not.
        """
        differences = [] if self.native.same() else self.native.differences()
        return [_sentence(_pretty(path), was, now) for path, was, now in differences if len(was) == len(now) == 2]

    @property
    def volatile(self) -> list[str]:
        """What changes before each call, so that recording is of no use."""
        return [path for path, count in self._counts.items() if count >= _OFTEN]

    def rebase(self) -> None:
        """Take the present state as the recorded one."""
        self._streaks = self._counts
        self._counts = {}
        if not self.native.same():
            self._write()

    def watched(self) -> list[str]:
        paths = (_pretty(path) for path in self.native.paths() if not path.endswith(_HIDDEN))
        return list(dict.fromkeys(path for path in paths if not path.startswith(("torch.", "builtins."))))

    def unwatched(self) -> list[str]:
        long = [f"{_pretty(path)} is long: only its length is watched." for path in self.native.too_long]
        return [*self._unwatched, *long]


class _Ran:
    """As Ran, but without keeping what is the user's."""

    def __init__(self, ran: Ran) -> None:
        self._code = ran.code
        self._functions = [weakref.ref(function) for function in ran.functions]
        self._selves = [weakref.ref(one) for one in ran.selves]
        self._module = ran.globals.get("__name__")
        self._globals = id(ran.globals)

    def add_to(self, reach: Reach, entry: Any) -> None:
        functions = _alive(self._functions)
        names = self._names([*functions, entry])
        if names is not None:
            reach.add_ran(Ran(self._code, names, functions, _alive(self._selves)))

    def _names(self, functions: list[Any]) -> dict[str, Any] | None:
        """The globals, if somebody still has them."""
        module = sys.modules.get(self._module) if type(self._module) is str else None
        found = [one.__globals__ for one in functions if type(one) is types.FunctionType]
        found.append({} if module is None else instance_dict(module) or {})
        return next((names for names in found if id(names) == self._globals), None)


def _weakly(function: Any) -> Any:
    if type(function) is types.MethodType:
        return weakref.WeakMethod(function)
    try:
        return weakref.ref(function)
    except TypeError:  # of a class with __slots__; whoever asked for the watch has it anyway
        return lambda: function


def _alive(references: Iterable[weakref.ref[Any]]) -> list[Any]:
    return [thing for thing in (reference() for reference in references) if thing is not None]


def _pretty(path: str) -> str:
    return _HELD.sub(r".\1", path)


def _names(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else ", ".join(paths[:-1]) + " and " + paths[-1]


def _sentence(path: str, was: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    if was == ("freed object",) and not now:
        return f"{path} was freed."
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
