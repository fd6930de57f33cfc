"""An op's schema, as torch prints it, taken apart: which arguments it has, and how each is given in a call."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_HEAD = re.compile(r"[^()\s]+\(")
_ARGUMENT = re.compile(r"(?P<type>.+?)\s+(?P<name>[A-Za-z_]\w*)(?:\s*=\s*(?P<default>.+))?", re.DOTALL)
_SIZED = re.compile(r"\[(\d+)\]\??$")


class Argument(NamedTuple):
    name: str
    type: str  # with its alias annotation: "Tensor(a!)"
    keyword_only: bool
    default: str | None  # as printed

    @property
    def written(self) -> bool:
        """Whether the op writes to what stands in this place."""
        return "!" in self.type

    @property
    def is_tensor(self) -> bool:
        """Whether one tensor stands in this place, not a list of them."""
        return self.type.rstrip("?") == "Tensor" or (self.type.startswith("Tensor(") and self.type[-1] in ")?")

    def is_default(self, value: Any) -> bool:
        """Whether a value is what the op takes when nothing is given. False when in doubt."""
        if self.default is None:
            return False
        try:
            default = ast.literal_eval(self.default)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return False
        sized = _SIZED.search(self.type)
        if isinstance(value, list) and sized and not isinstance(default, list):
            default = [default] * min(int(sized[1]), len(value) + 1)
        # 1, 1.0 and True are equal, but not the same to an op; so are 0.0 and -0.0.
        return repr(value) == repr(default)


@functools.lru_cache(maxsize=4096)
def arguments(schema: str) -> tuple[Argument, ...]:
    """The arguments of a schema, in order. Empty for a text that is no schema."""
    head = _HEAD.match(schema)
    if head is None:
        return ()
    found = []
    keyword_only = False
    for part in _parts(schema[head.end() :]):
        if part == "*":
            keyword_only = True
            continue
        match = _ARGUMENT.fullmatch(part)
        if match is not None:
            found.append(Argument(match["name"], match["type"], keyword_only, match["default"]))
    return tuple(found)


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas, up to the parenthesis that closes the list."""
    depth, start, quote, escaped = 0, 0, "", False
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and not escaped else quote
            escaped = letter == "\\" and not escaped
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}" and depth > 0:
            depth -= 1
        elif letter in ",)" and depth == 0:
            part = text[start:at].strip()
            if part:
                yield part
            if letter == ")":
                return
            start = at + 1
