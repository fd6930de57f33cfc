"""The stacks of one process as lists of frames, each made once and shared by all that refer to it."""

from __future__ import annotations

import re
from typing import Any

from torchreel.export.snapshot.rows import ProcessTables, json_value

# What torch writes for a line that Python does not know: -1 without a sign.
_UNKNOWN_LINE = 2**64 - 1
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

Frames = list[dict[str, Any]]


class Stacks:
    """Looks up the frames of a stack by its id."""

    def __init__(self, process: ProcessTables) -> None:
        columns = ["id", "file", "line", "function", "fx"]
        self._frames = {
            number: {
                "filename": file or "",
                "line": 0 if line is None else _UNKNOWN_LINE if line < 0 else line,
                "name": name or "",
                **(json_value(fx, "the FX node of a frame", process.reel) or {}),
            }
            for number, file, line, name, fx in process.rows("frames", columns)
        }
        self._numbers = dict(process.rows("stacks", ["id", "frames"]))
        self._known: dict[int, Frames] = {}
        self._forward: dict[str, list[str]] = {}

    def frames(self, stack: int | None) -> Frames | None:
        """The frames of a stack, the innermost first; None if there is no such stack."""
        if stack is None or stack not in self._numbers:
            return None
        if stack not in self._known:
            numbers = self._numbers[stack] or ()
            self._known[stack] = [self._frames[number] for number in numbers if number in self._frames]
        return self._known[stack]

    def forward(self, text: str | None) -> list[str] | None:
        """The lines of a forward call's stack, in which line feeds had been escaped."""
        if text is None:
            return None
        if text not in self._forward:
            lines = text.split("\n") if text else []
            self._forward[text] = [_ESCAPED.sub(_unescaped, line) for line in lines]
        return self._forward[text]


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
