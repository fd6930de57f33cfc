"""The programs of the pages on graphs run as they stand there, and are replayed from the third call on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from torchreel.graphs.call.entry import Graphed

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = [
    pytest.param(page, program, id=f"{page}-{number}")
    for page in ("graphs.md", "graphs-guards.md")
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S))
]


def test_there_are_programs() -> None:
    assert {param.values[0] for param in PROGRAMS} == {"graphs.md", "graphs-guards.md"}


@pytest.mark.parametrize(("page", "program"), PROGRAMS)
def test_program(page: str, program: str) -> None:
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(program, page, "exec"), names)  # its own assertions hold what it gives to eager
    graphed = [value for value in names.values() if isinstance(value, Graphed)]
    assert graphed
    for function in graphed:
        assert function.replays() >= 1, function.eager_calls()
