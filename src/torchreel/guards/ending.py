"""The end of a followed call: what it leaves in Python, and whether a replay would leave the same."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from torchreel import _graphs
from torchreel._cpython.opcodes import has_handlers
from torchreel._graphs import NULL, TensorState, gradient_of
from torchreel.guards import results, tensors
from torchreel.guards.eager import WriteError
from torchreel.guards.types_known import NUMBERS
from torchreel.guards.writes import Writes

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

# Guarded by value: the call that sets such an entry back may set another object than it found.
_BY_VALUE = (float, complex, tuple, frozenset, bytes, range, slice)


def changed_until(call: FollowedCall) -> str:
    """Of a call that could not be followed to its end: which entry it has read and changed until there, if any."""
    why = ""
    for holder, key, before, where in call.written.values() if call.writes is not None else ():
        if dict.get(holder, key, NULL) is not before and call.checks.has_entry(holder, key):
            why = f"sets {key!r}, which it reads ({where})"
    return why


class Ending:
    """A call that was followed to its end."""

    def __init__(self, call: FollowedCall) -> None:
        self._call = call
        self._look = results.Look(call)

    def why_not_left(self, result: Any) -> str:
        """Why a replay would not leave what the call leaves, or nothing."""
        writes = self._call.writes
        why = self._entries_left() if writes is None else self._do_writes(writes, result)
        return why or self._states_left()

    def why_not_returned(self, result: Any) -> str:
        """Why a replay cannot give what the call returned, or nothing."""
        return self._look.reason(result, "returns")

    def _do_writes(self, writes: Writes, result: Any) -> str:
        """Note what a replay has to write. Gives why it could not, or nothing."""
        try:
            for holder, key, before, where in self._call.written.values():
                now = dict.get(holder, key, NULL)
                if now is NULL and before is not NULL:
                    return f"deletes {key!r}, which a replay would not ({where})"
                if now is not before or self._call.is_given(now):
                    self._call.done.append((functools.partial(dict.__setitem__, holder, key), now))
                else:  # it was set back: guard the value
                    self._call.checks.entry(holder, key, before)
            self._call.done += writes.all()
        except WriteError as error:
            return str(error)
        if any(self._call.checks.has_read(holder) for holder in writes.lists()):
            return "reads a list, and changes it"
        for _, value in self._call.done:
            why = self._why_not_kept(value) if value is not result else ""
            if why:
                return why
        return ""

    def _why_not_kept(self, value: Any) -> str:
        if self._call.is_given(value) and not isinstance(value, torch.Tensor):
            return "leaves one of its arguments, which is no tensor"
        for tensor in tensors.tensors_in(value):
            if not self._call.is_fresh(tensor) and not self._call.is_given(tensor):
                return "leaves a tensor that was made before the call"
            if gradient_of(tensor) is not None and not self._call.is_given(tensor):
                return "leaves a leaf with its gradient"
        return self._look.reason(value, "leaves")

    def _entries_left(self) -> str:
        for holder, name, before, where in self._call.written.values():
            now = dict.get(holder, name, NULL)
            if now is not before:
                return f"sets {name!r}, which a replay would not ({where})"
            if self._call.is_given(before) or type(before) in _BY_VALUE:
                return f"sets {name!r} to what may be another value in another call ({where})"
        return ""

    def _states_left(self) -> str:
        for kind, name, before, where in self._call.classes_set.values():
            if vars(kind).get(name, NULL) is not before or type(before) in NUMBERS:
                return f"sets {kind.__qualname__}.{name}, which a replay would not ({where})"
            self._call.checks.renew_types(kind)
        for variable, before in self._call.variables_set.values():
            if variable.get(NULL) is not before:
                return f"sets the context variable {variable.name}"
        for tensor in self._call.cleared if self._call.writes is None else ():
            had = id(tensor) in self._call.states and self._call.states[id(tensor)].bits & TensorState.GRAD
            if had and tensor.grad is None:
                return "clears a gradient, and leaves it so, which a replay would not"
        if any(tensor.requires_grad is not before for tensor, before in self._call.required):
            return "leaves a tensor that was made before the call with another requires_grad"
        if _graphs.Modes.now() != self._call.modes:
            return "leaves a mode of torch changed"
        for generator in self._call.native.generators:
            if generator.gi_frame is not None and has_handlers(generator.gi_code):
                return f"leaves the generator {generator.__qualname__} before its end"
        return ""
