"""What the reader of Python says of a text, in words that are short to compare."""

from __future__ import annotations

import functools
import os
import random
import sysconfig
from pathlib import Path
from textwrap import dedent

import torch

from torchreel.atlas.model import Parsed
from torchreel.atlas.read.python.source import parse

TORCH = Path(torch.__file__).parent
STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))


def read(text: str) -> Parsed:
    return parse(dedent(text))


def symbols(text: str) -> list[str]:
    """`line:column kind scope.name`, in order."""
    return [
        f"{one.line}:{one.column} {one.kind} {one.scope}.{one.name}".replace(" .", " ") for one in read(text).symbols
    ]


def uses(text: str) -> list[str]:
    """`line:column name`, and behind it `-> line` of the symbol that it means, or `= path` for an imported one."""
    parsed = read(text)
    found = []
    for line, column, slot in zip(parsed.lines, parsed.columns, parsed.slots, strict=True):
        use = parsed.uses[slot]
        meaning = f" -> {parsed.symbols[use.symbol].line}" if use.symbol >= 0 else f" = {use.path}" if use.path else ""
        found.append(f"{line}:{column} {use.name}{meaning}")
    return found


def used_in(text: str, line: int) -> list[str]:
    """The uses in one line, without their places."""
    return [use.partition(" ")[2] for use in uses(text) if use.startswith(f"{line}:")]


def tokens(text: str) -> list[tuple[str, int]]:
    """The text of each token, and its kind."""
    return [(text[start:end], kind) for start, end, kind in parse(text).tokens]


def files_of(folder: Path, count: int, seed: int) -> list[Path]:
    """Some Python files below a folder, the same for the same seed."""
    return random.Random(seed).sample(_files(folder), count)


def title(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@functools.cache
def _files(folder: Path) -> list[Path]:
    found = []
    for directory, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "site-packages"]
        found += [Path(directory, name) for name in names if name.endswith(".py")]
    return sorted(found)
