"""A frame, and by the path of its file whose code it is: the user's own, a library's, torch's or Python's own, C++."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

USER, LIBRARY, TORCH, NATIVE = range(4)

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_TORCH = re.compile(r"[/\\]torch[/\\](_\w+\.py|(nn|optim|autograd|utils|amp|cuda|distributed|_\w+)[/\\])")
_TORCH_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]torch[/\\]")
_TYPED_IN = ("<stdin>", "<ipython-input")
_PYTHON_ITSELF = re.compile(r"[/\\]lib[/\\]python3\.\d+[/\\]|\\Lib\\")


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
    if not file.endswith((".py", ".pyx", ".ipynb")) and not file.startswith("<"):
        kind = NATIVE
    elif file.startswith("<") and not file.startswith(_TYPED_IN):
        kind = TORCH  # <frozen ...>, and code that a library wrote
    elif _TORCH_INSTALLED.search(file) or (_TORCH.search(file) and not _INSTALLED.search(file)):
        kind = TORCH
    elif _INSTALLED.search(file):
        kind = LIBRARY
    elif _PYTHON_ITSELF.search(file):
        kind = TORCH
    else:
        kind = USER
    return Frame(file, line, function, kind)
