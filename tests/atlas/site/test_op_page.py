"""The pages of operators."""

from __future__ import annotations

import re

from tests.atlas.site.example_facts import SITE, op_facts, ops_facts
from torchreel.atlas.model import Costs
from torchreel.atlas.site.op_page import op_page, ops_page
from torchreel.atlas.site.sections import COMMANDS


def ids(page: str) -> list[str]:
    return re.findall(r'<h2 id="([^"]+)"', page)


def test_recorded() -> None:
    page = op_page(op_facts(), SITE)
    assert ids(page) == ["cost", "lines", "shapes", "overloads"]
    assert "Its backward, with all calls below: 3.00 ms in 12 calls, 2.0 KiB allocated." in page
    assert '<a href="../index.html">Operators</a>' in page


def test_null_and_zero_are_told_apart() -> None:
    facts = op_facts()
    facts.costs, facts.lines, facts.shapes = Costs(), [], []
    page = op_page(facts, SITE)
    assert "The run was recorded, and did not call it." in page
    assert "torchreel record --shapes" in page
    facts.costs = None
    page = op_page(facts, SITE)
    assert ids(page) == ["cost", "overloads"]
    assert "\n".join(COMMANDS) in page


def test_what_is_not_known_of_an_overload_is_said() -> None:
    page = op_page(op_facts(), SITE).partition("aten::mm.out")[2]
    assert "not called" in page
    assert "Its schema is in none of the tables of PyTorch that were read." in page
    assert "No kernel is named for it in the dispatch table." in page
    assert "No formula is written for it in the table of derivatives." in page


def test_all_operators() -> None:
    facts = ops_facts()
    assert "backward" in ops_page(facts, SITE)
    for row in facts.rows:
        row.costs = None
    page = ops_page(facts, SITE)
    assert "backward" not in page
    assert "2 operators that ran or are registered in the sources." in page
    facts.rows = []
    assert "No operator ran, and the sources register none." in ops_page(facts, SITE)
