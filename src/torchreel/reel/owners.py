"""Whose code a file is, by its path: the user's own, a library's, torch's or Python's own, C++."""

from __future__ import annotations

import re

USER, LIBRARY, TORCH, NATIVE = range(4)

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_TORCH = re.compile(r"[/\\]torch[/\\](_\w+\.py|(nn|optim|autograd|utils|amp|cuda|distributed|_\w+)[/\\])")
_TORCH_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]torch[/\\]")
_TYPED_IN = ("<stdin>", "<ipython-input")
_PYTHON_ITSELF = re.compile(r"[/\\]lib[/\\]python3\.\d+[/\\]|\\Lib\\")


def owner_of(file: str) -> int:
    """USER, LIBRARY, TORCH (with Python's own library and code that a library wrote) or NATIVE."""
    if not file.endswith((".py", ".pyx", ".ipynb")) and not file.startswith("<"):
        return NATIVE
    if file.startswith("<") and not file.startswith(_TYPED_IN):
        return TORCH  # <frozen ...>, and code that a library wrote
    if _TORCH_INSTALLED.search(file) or (_TORCH.search(file) and not _INSTALLED.search(file)):
        return TORCH
    if _INSTALLED.search(file):
        return LIBRARY
    return TORCH if _PYTHON_ITSELF.search(file) else USER
