"""How a function calls its arguments."""

from __future__ import annotations

import inspect
from typing import Any

import torch

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters_of(function: Any) -> list[inspect.Parameter] | None:
    """None where nobody knows, as of a function of C."""
    if isinstance(function, torch.nn.Module):
        function = function.forward
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


class ParameterNames:
    """Names for positional arguments."""

    def __init__(self, function: Any = None) -> None:
        parameters = parameters_of(function) or [] if function is not None else []
        self._names = [one.name for one in parameters if one.kind in _BY_PLACE]
        self._rest = next((one.name for one in parameters if one.kind is inspect.Parameter.VAR_POSITIONAL), "")

    def of(self, path: str) -> str:
        """Of "1.hidden.0", the name of the second parameter and where in it: `state_hidden_0`. Empty if it has none."""
        first, _, inside = path.partition(".")
        index = int(first)
        if index < len(self._names):
            name = self._names[index]
        elif self._rest:
            name = f"{self._rest}_{index - len(self._names)}"
        else:
            return ""
        return f"{name}_{inside.replace('.', '_')}" if inside else name
