"""What the reader of C++ says of a text, in words that are short to compare."""

from __future__ import annotations

import random
from pathlib import Path
from textwrap import dedent

import torch

from torchreel.atlas.model import Parsed
from torchreel.atlas.read.cpp.source import parse

HEADERS = Path(torch.__file__).parent / "include"


def read(text: str) -> Parsed:
    return parse(dedent(text))


def symbols(text: str) -> list[str]:
    """`line kind scope::name`, in order; `?` at the end of what is only declared."""
    return [
        f"{one.line} {one.kind} {one.scope}::{one.name}{'?' if one.declaration else ''}".replace(" ::", " ")
        for one in read(text).symbols
    ]


def uses(text: str) -> list[str]:
    """`line:column name`, and behind it `-> line` of the symbol that it means."""
    parsed = read(text)
    found = []
    for line, column, slot in zip(parsed.lines, parsed.columns, parsed.slots, strict=True):
        use = parsed.uses[slot]
        meaning = f" -> {parsed.symbols[use.symbol].line}" if use.symbol >= 0 else ""
        found.append(f"{line}:{column} {use.name}{meaning}")
    return found


def names_used(text: str) -> set[str]:
    return {use.name for use in read(text).uses}


def headers(count: int, seed: int) -> list[Path]:
    """Some of the headers of the installed torch, always the same for a seed."""
    found = sorted(path for path in HEADERS.rglob("*") if path.suffix in (".h", ".hpp", ".cuh"))
    return random.Random(seed).sample(found, count)
