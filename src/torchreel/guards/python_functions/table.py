"""The tables of what is known, by object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

Told = Callable[[Any], object] | None
Rule = Callable[["FollowedCall", list[Any], dict[str, Any]], Told]
FUNCTIONS: dict[int, Rule] = {}  # by the id of a function of C
METHODS: dict[int, Rule] = {}  # by the id of a descriptor
CLASSES: dict[Any, Rule] = {}
_kept: list[Any] = []  # so that the ids stay theirs


def know(table: dict[int, Rule], rule: Rule, *objects: Any) -> None:
    for one in objects:
        _kept.append(one)
        table[id(one)] = rule


def methods_of(kind: type, *names: str) -> list[Any]:
    return [vars(kind)[name] for name in names if name in vars(kind)]
