"""Methods of torch that do something else while a function is traced.

Their code is exchanged, not they: what Python has cached of a class stays valid, and so does what others imported.
"""

from __future__ import annotations

import types
from typing import Any


def copy_of(function: Any) -> Any:
    """The function as it is, to be called by the code that stands in its place."""
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class Exchange:
    def __init__(self, *pairs: tuple[Any, Any]) -> None:
        """Each a function of torch, and one of ours with the same parameters and no closure."""
        self._codes = [(theirs, ours.__code__, theirs.__code__) for theirs, ours in pairs]

    def switch(self, on: bool) -> None:
        for function, ours, theirs in self._codes:
            function.__code__ = ours if on else theirs

    def codes(self) -> dict[Any, types.CodeType]:
        """The functions, and their own code."""
        return {function: theirs for function, _, theirs in self._codes}
