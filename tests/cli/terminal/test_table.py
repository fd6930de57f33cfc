"""Tables on terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from torchreel.cli.terminal.table import Column, draw, shortened

COLUMNS = [
    Column("Name", ["aten::convolution_backward_overrideable"]),
    Column("Self CPU %", ["12.00%"], number=True),
    Column("CPU time avg", ["123.456us"], number=True),
    Column("Source Location", ["/a/long/way/to/the/source/model.py(12): forward\n/b.py(1): main"], keep_end=True),
]

WIDE = """\
Name                                     Self CPU %  CPU time avg  Source Location
---------------------------------------- ----------- ------------- -----------------------------------------------
aten::convolution_backward_overrideable      12.00%     123.456us  /a/long/way/to/the/source/model.py(12): forward
                                                                   /b.py(1): main
"""

NARROW = """\
                     Self CPU   CPU time
Name                        %        avg  Source Location
-------------------- --------- ---------- --------------------------------------
aten::convolution_…    12.00%  123.456us  …y/to/the/source/model.py(12): forward
                                          /b.py(1): main
"""

TINY = """\
              Self CPU   CPU time
Name                 %        avg  Source Loca…
------------- --------- ---------- ------------
aten::convo…    12.00%  123.456us  …2): forward
                                   …py(1): main
"""


def drawn(width: int, **options: object) -> str:
    file = io.StringIO()
    draw(COLUMNS, Console(file=file, width=width, markup=False, **options))  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize(("width", "text"), [(200, WIDE), (80, NARROW), (20, TINY)])
def test_texts_give_way_and_numbers_do_not(width: int, text: str) -> None:
    assert drawn(width) == text


def test_colours_only_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in drawn(200, force_terminal=True)
    assert "\x1b[" not in drawn(200)


@pytest.mark.parametrize(
    ("text", "width", "keep_end", "result"),
    [
        ("short", 5, False, "short"),
        ("longer", 5, False, "long…"),
        ("longer", 5, True, "…nger"),
        ("日本語", 5, False, "日本…"),
        ("日本語", 4, True, "…語"),
    ],
)
def test_shortened(text: str, width: int, keep_end: bool, result: str) -> None:
    assert shortened(text, width, keep_end) == result
