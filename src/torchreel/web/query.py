"""The query of a request: text that must be checked before it is a number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchreel.errors import OptionError

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Query:
    values: dict[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return bool(self.values.get(name))

    def text(self, name: str, otherwise: str = "") -> str:
        return self.values.get(name) or otherwise

    def words(self, name: str, otherwise: str = "") -> tuple[str, ...]:
        """What stands between commas."""
        return tuple(filter(None, self.text(name, otherwise).split(",")))

    def number(self, name: str, least: int, most: int, otherwise: int) -> int:
        text = self.text(name)
        if not text:
            return otherwise
        if not re.fullmatch(r"-?\d{1,19}", text) or not least <= int(text) <= most:
            raise OptionError(f"{name}={text[:40]} is not a whole number from {least} to {most}.")
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...], otherwise: str) -> str:
        text = self.text(name, otherwise)
        if text not in choices:
            raise OptionError(f"{name}={text[:40]} is none of {', '.join(choices)}.")
        return text


def rows_of(result: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """The rows of a result as dictionaries."""
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
