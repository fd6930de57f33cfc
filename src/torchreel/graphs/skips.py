"""Calls that run eagerly, each kind with its reason: counted for `status()`, and logged once per reason."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_MOST = 256  # kinds of calls that are told apart
_OTHERS = "others"
_PLAIN = (bool, int, float, str, type(None))

logger = logging.getLogger("torchreel.graphs")


@dataclass(frozen=True)
class Skip:
    """Calls that run eagerly, and why."""

    call: str
    reason: str
    calls: int = 0  # that ran eagerly for this reason


def _key(value: Any) -> Any:
    """A cheap key, as each skipped call computes it. Calls that differ in structure alone have one key."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape
    return value if type(value) in _PLAIN else type(value)


class Skips:
    """The skipped calls of one function."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}  # by call and reason
        self._texts: dict[Any, str] = {}  # calls, by what tells them apart
        self._logged: set[str] = set()

    def count(self, args: tuple[Any, ...], kwargs: dict[str, Any], describe: Callable[[], str], reason: str) -> str:
        """One more call of a kind of which nothing else is kept. Gives the text of it."""
        key = tuple(map(_key, args)), tuple((name, _key(value)) for name, value in kwargs.items())
        text = self._texts.get(key)
        if text is None:
            text = describe() if len(self._texts) < _MOST else _OTHERS
            if text is not _OTHERS:
                self._texts[key] = text
        self._counts[text, reason] = self._counts.get((text, reason), 0) + 1
        return text

    def is_logged(self, reason: str) -> bool:
        return reason in self._logged

    def log(self, function: str, call: str, reason: str) -> None:
        """Say it once."""
        if reason in self._logged or len(self._logged) >= _MOST:
            return
        self._logged.add(reason)
        logger.warning("A call of %s%s runs eagerly: %s", function, f" ({call})" if call else "", reason)

    def all(self) -> list[Skip]:
        return [Skip(call, reason, calls) for (call, reason), calls in list(self._counts.items())]

    def clear(self) -> None:
        self._counts.clear()
        self._texts.clear()
        self._logged.clear()
