"""The keywords of a letter."""

from __future__ import annotations

import re

from tests.atlas.site.example_facts import SITE, keyword_facts
from torchreel.atlas.model import Link
from torchreel.atlas.site.facts import KeywordRow
from torchreel.atlas.site.keyword_pages import keyword_page


def test_a_keyword_stands_once_with_all_its_places() -> None:
    page = keyword_page(keyword_facts(), SITE)
    assert re.findall(r'<dt id="([^"]+)">(\w+)</dt>', page) == [("k.Net", "Net"), ("k.Next", "Next")]
    assert page.count("../files/app/nets/net.py.html#d.Net") == 3


def test_the_letter_of_the_page_is_marked() -> None:
    page = keyword_page(keyword_facts(), SITE)
    assert re.findall(r'<a href="([^"]+)" aria-current="page">', page) == ["N.html", "N-e.html"]


def test_nothing_is_cut() -> None:
    facts = keyword_facts()
    facts.rows = [KeywordRow(f"n{n}", "uses", [Link(f"f{m}", f"f{m}.html") for m in range(300)]) for n in range(200)]
    page = keyword_page(facts, SITE)
    assert page.count("<dt ") == 200
    assert page.count('href="f') == 200 * 300
    assert page.count('<dl class="words block">') == 4


def test_a_letter_whose_words_are_on_other_pages() -> None:
    facts = keyword_facts()
    facts.rows = []
    assert "Its keywords are under their second letters." in keyword_page(facts, SITE)
    facts.seconds = []
    assert "No keywords are on this page." in keyword_page(facts, SITE)
