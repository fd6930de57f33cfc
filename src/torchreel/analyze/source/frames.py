"""A frame, and by the path of its file whose code it is: the user's own, a library's, torch's or Python's own, C++."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from torchreel.reel.owners import LIBRARY, NATIVE, TORCH, USER, owner_of

__all__ = ["LIBRARY", "NATIVE", "TORCH", "USER", "Frame", "frame_of"]


@dataclass(frozen=True)
class Frame:
    """One line of source, or one C++ function."""

    file: str
    line: int
    function: str
    kind: int

    @functools.cached_property
    def called(self) -> str:
        """The function's own name, without its class."""
        return self.function.rpartition(".")[2]

    @property
    def name(self) -> str:
        """The file without its directories."""
        return re.split(r"[/\\]", self.file)[-1]

    @property
    def text(self) -> str:
        """The last two parts of its path, the line and the function: src/model.py:12 Net.forward."""
        parts = re.split(r"[/\\]", self.file)
        return f"{'/'.join(parts[-2:])}:{self.line} {self.function}"


def frame_of(file: str, line: int, function: str) -> Frame:
    """A frame, with what it is judged by its path."""
    return Frame(file, line, function, owner_of(file))
