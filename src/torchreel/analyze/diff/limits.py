"""Limits on a change: "self +5%, peak +2%, ops +0"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchreel.analyze.diff.diff import Change, Diff
from torchreel.errors import OptionError

_NUMBERS = {"self": "self_ns", "wall": "wall_ns", "peak": "peak_bytes", "ops": "ops"}
_TIMES = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_UNITS = {
    "self": _TIMES,
    "wall": _TIMES,
    "peak": {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30},
    "ops": {"": 1},
}
_LIMIT = re.compile(r"(?P<what>[a-z]+)\s*\+\s*(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>%|[A-Za-z]*)")


@dataclass(frozen=True)
class Limit:
    """How much a number may grow from A to B."""

    text: str
    what: str
    number: float
    percent: bool

    def change(self, found: Diff) -> Change | None:
        change: Change | None = getattr(found, _NUMBERS[self.what])
        return change

    def is_broken(self, found: Diff) -> bool:
        change = self.change(found)
        if change is None:
            raise OptionError(f"The limit {self.text!r} cannot be held: both reels must be recorded with --memory.")
        most = change.a * (1 + self.number / 100) if self.percent else change.a + self.number
        return change.b > most


def parse_limits(text: str) -> list[Limit]:
    """One or more limits with commas between them; an OptionError says which cannot be read."""
    return [_parsed(part.strip()) for part in text.split(",")]


def _parsed(text: str) -> Limit:
    match = _LIMIT.fullmatch(text)
    what = match["what"] if match else ""
    if match is None or what not in _NUMBERS:
        raise OptionError(
            f"The limit {text!r} cannot be read: give one of {', '.join(_NUMBERS)} with how much it may grow, "
            'as in "self +5%, peak +2%, ops +0".'
        )
    if match["unit"] == "%":
        return Limit(text, what, float(match["number"]), percent=True)
    units = _UNITS[what]
    number = float(match["number"])
    if match["unit"] not in units and not (number == 0 and match["unit"] == ""):
        raise OptionError(
            f"The limit {text!r} has no unit that fits {what}: give a percentage, or {', '.join(units) or 'a number'}."
        )
    return Limit(text, what, number * units.get(match["unit"], 1), percent=False)
