"""The front page."""

from __future__ import annotations

import re

from tests.atlas.site.example_facts import SITE, index_facts
from torchreel.atlas.site.index_page import index_page
from torchreel.atlas.site.sections import COMMANDS


def ids(page: str) -> list[str]:
    return re.findall(r'<h2 id="([^"]+)"', page)


def test_with_a_run() -> None:
    page = index_page(index_facts(), SITE)
    assert ids(page) == ["run", "roots", "lines", "functions", "files", "ops", "numbers"]
    assert "No op was recorded with a stack." not in page
    assert "60.0 µs of it (2.0 %) are of lines in files that are in no root" in page


def test_without_ops() -> None:
    facts = index_facts()
    facts.ops = []
    assert "No op was recorded with a stack." in index_page(facts, SITE)


def test_without_a_run_it_says_how_to_measure_one() -> None:
    facts = index_facts()
    facts.run = None
    page = index_page(facts, SITE)
    assert ids(page) == ["roots", "measure"]
    assert "\n".join(COMMANDS) in page
    assert ">self<" not in page


def test_a_run_without_steps() -> None:
    facts = index_facts()
    assert facts.run is not None
    facts.run.steps = facts.run.elsewhere = None
    page = index_page(facts, SITE)
    assert "Steps" not in page
    assert "no root of this site" not in page
