"""The settings of a group of an optimizer, as they were when it took a step."""

from __future__ import annotations

from operator import is_
from typing import Any

import torch

from torchreel.errors import GuardError
from torchreel.tape.likeness import Itself, Part, likeness
from torchreel.tape.plain import is_plain

_LONGEST = 80  # letters of a value in a message


class GroupSettings:
    """Made while the function runs, and looked at before each replay: so it is quick where all is plain."""

    def __init__(self, group: dict[str, Any], is_torchs: bool) -> None:
        """torch's optimizers read only their own settings: entries that a scheduler adds are left out."""
        self.values = {name: value for name, value in group.items() if name != "params"}
        self._count = len(group["params"])
        self._free = 0
        self._all = not is_torchs
        self._was = {name: _likeness(value) for name, value in self.values.items() if not is_plain(value)}

    def let_change(self, name: str) -> None:
        """The tape reads it at each replay."""
        del self.values[name]
        self._free += 1

    def check(self, group: dict[str, Any]) -> None:
        """Raises a GuardError that names what has changed."""
        if len(group["params"]) != self._count:
            raise GuardError(
                f"A group of the optimizer had {self._count} parameters when the tape was made, and has "
                f"{len(group['params'])} now: trace again."
            )
        if self._all and len(group) != len(self.values) + self._free + 1:
            raise GuardError("A group of the optimizer has other settings than when the tape was made: trace again.")
        if not self._was and all(map(is_, map(group.get, self.values), self.values.values())):
            return
        for name, value in self.values.items():
            now = group.get(name)
            if (now is not value or name in self._was) and _likeness(now) != (self._was.get(name) or _likeness(value)):
                raise changed_setting(name, value, now)


def _likeness(value: Any) -> list[Part]:
    """A tensor is like itself alone: the tape has that one."""
    if isinstance(value, torch.Tensor):
        return [("", Itself(value))]
    if isinstance(value, tuple | list):
        parts = [part for each in value for part in _likeness(each)]
        return [("", (type(value), len(value))), *parts]
    return likeness(value)


def changed_setting(name: str, was: Any, now: Any) -> GuardError:
    """What is said where a setting is not what it was."""
    if isinstance(was, torch.Tensor) or was is now or max(len(repr(was)), len(repr(now))) > _LONGEST:
        return GuardError(
            f"The optimizer's {name} is another now than when the tape was made; the tape has the old one: trace again."
        )
    return GuardError(
        f"The optimizer's {name} was {was!r} when the tape was made, and is {now!r} now; the tape has the old one: "
        "trace again."
    )
