"""What bytecode reads from outside of its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchreel.graphs.watch_reads import CLOSED, GLOBAL, IMPORT, SELF, Read, reads

config: Any = None
other: Any = None


def plain(x: Any) -> Any:
    return x * config.model.scale + x.size


def alias(x: Any) -> Any:
    local = config.model
    return x * local.scale


def two_things(x: Any) -> Any:
    local = config
    if x:
        local = x
    return local.scale


def nested(x: Any) -> Any:
    local = config
    return [local.scale * y for y in x], lambda: other.rate


def imported(x: Any) -> Any:
    import math

    return x * math.pi


def sets(x: Any) -> None:
    global other
    other = x
    config.count += 1
    config.inner.last = x


class Thing:
    def method(self, x: Any) -> Any:
        return x * self.config.scale

    def within(self, x: Any) -> Any:
        self.calls = x
        return [self.scale * y for y in x]


def closing() -> Callable[[Any], Any]:
    factor: Any = 1

    def inner(x: Any) -> Any:
        return lambda: x * factor.scale

    return inner


_MANY = "def many(x):\n" + "".join(f"    x.a{i}\n" for i in range(300)) + "    return config.last\n"

CASES: dict[str, tuple[Any, set[Read]]] = {
    "plain": (
        plain,
        {Read(GLOBAL, "config"), Read(GLOBAL, "config", ("model",)), Read(GLOBAL, "config", ("model", "scale"))},
    ),
    "alias": (
        alias,
        {Read(GLOBAL, "config"), Read(GLOBAL, "config", ("model",)), Read(GLOBAL, "config", ("model", "scale"))},
    ),
    "two things": (two_things, {Read(GLOBAL, "config")}),
    "nested": (
        nested,
        {
            Read(GLOBAL, "config"),
            Read(GLOBAL, "config", ("scale",)),
            Read(GLOBAL, "other"),
            Read(GLOBAL, "other", ("rate",)),
        },
    ),
    "imported": (imported, {Read(IMPORT, "math"), Read(IMPORT, "math", ("pi",))}),
    "method": (
        Thing.method,
        {Read(SELF, "self"), Read(SELF, "self", ("config",)), Read(SELF, "self", ("config", "scale"))},
    ),
    "within": (Thing.within, {Read(SELF, "self"), Read(SELF, "self", ("scale",))}),
    "closing": (closing(), {Read(CLOSED, "factor"), Read(CLOSED, "factor", ("scale",))}),
}


@pytest.mark.parametrize("kind", CASES)
def test_reads(kind: str) -> None:
    function, expected = CASES[kind]
    assert set(reads(function.__code__).read) == expected


def test_names_beyond_one_byte() -> None:
    names: dict[str, Any] = {}
    exec(_MANY, names)
    assert set(reads(names["many"].__code__).read) == {Read(GLOBAL, "config"), Read(GLOBAL, "config", ("last",))}


def test_what_is_set() -> None:
    assert set(reads(sets.__code__).written) == {
        Read(GLOBAL, "other"),
        Read(GLOBAL, "config", ("count",)),
        Read(GLOBAL, "config", ("inner", "last")),
    }
    assert reads(Thing.within.__code__).written == (Read(SELF, "self", ("calls",)),)
