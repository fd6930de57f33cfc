"""Rules of functools.lru_cache."""

from __future__ import annotations

import functools
import types
import typing
from typing import TYPE_CHECKING, Any

from torchreel._cpython.interpreter import CachedFunction
from torchreel.guards.eager import EagerError
from torchreel.guards.python_functions.functions import reads_nothing
from torchreel.guards.python_functions.table import Rule, Told
from torchreel.guards.types_known import compares_by_identity

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall


def cache_state(function: Any) -> tuple[int, int]:
    """Equal as long as nothing was added to the cache or removed from it."""
    info = function.cache_info()
    return info.misses, info.currsize


def _cached(function: Any) -> Rule:
    """functools.lru_cache: what is in the cache is given again, whatever its function would read now."""

    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        for value in (*values, *keywords.values()):
            if not compares_by_identity(value) or call.is_given(value):
                raise EagerError(f"looks up a {type(value).__name__} in the cache of {function.__qualname__}()")
        before = cache_state(function)
        call.checks.ask(f"{function.__qualname__}.cache_info()", cache_state, (function,), before)
        again = functools.partial(function, *values, **keywords)  # a hit, which eager calls have as well
        # A miss changes the state, so that the guards do not hold when the call ends.
        return lambda answer: call.checks.ask(f"{function.__qualname__}()", again, (), answer)

    return rule


def _is_of_typing(function: Any) -> bool:
    """A cache of the module typing: what it makes of types reads nothing that changes."""
    wrapped = getattr(function, "__wrapped__", None)
    return type(wrapped) is types.FunctionType and wrapped.__globals__ is vars(typing)


def rule_of_object(function: Any) -> Rule | None:
    if type(function) is CachedFunction and _is_of_typing(function):
        return reads_nothing
    return _cached(function) if type(function) is CachedFunction else None
