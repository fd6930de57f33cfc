"""All pages: whole, well formed, without anything live, each id once, every link within the page leading somewhere."""

from __future__ import annotations

from collections import Counter
from urllib.parse import unquote

import pytest

from tests.atlas.site.example_facts import EXPECTED, HARMLESS, HOSTILE, PAGES, SITE, with_suffix
from tests.atlas.site.read_html import ReadPage
from torchreel.atlas.site import pages

_PICTURED = HOSTILE.replace("\x01", "␁").replace("\udc80", "\ufffd")
EVERY = pytest.mark.parametrize("name", PAGES)


def made(name: str) -> str:
    facts, page = PAGES[name]
    return page(facts(), SITE)


def made_with(name: str, suffix: str) -> str:
    facts, page = PAGES[name]
    return page(with_suffix(facts(), suffix), with_suffix(SITE, suffix))


@EVERY
def test_the_whole_page(name: str) -> None:
    assert made(name) == (EXPECTED / name).read_text()


@EVERY
def test_hostile_text_stays_text(name: str) -> None:
    page = made_with(name, HOSTILE)
    page.encode()
    read = ReadPage(page)
    harmless = ReadPage(made_with(name, HARMLESS))
    assert [(tag, set(attributes)) for tag, attributes in read.elements] == [
        (tag, set(attributes)) for tag, attributes in harmless.elements
    ]
    assert _PICTURED in read.text


@EVERY
@pytest.mark.parametrize("suffix", ["", HOSTILE], ids=["plain", "hostile"])
def test_nothing_is_styled_or_handled_within_a_page(name: str, suffix: str) -> None:
    for tag, attributes in ReadPage(made_with(name, suffix)).elements:
        assert tag not in ("style", "iframe", "object", "base", "img")
        assert not [attribute for attribute in attributes if attribute == "style" or attribute.startswith("on")]


@EVERY
def test_each_id_is_there_once(name: str) -> None:
    counts = Counter(ReadPage(made(name)).ids)
    assert [one for one, count in counts.items() if count > 1] == []


@EVERY
def test_links_within_the_page_lead_somewhere(name: str) -> None:
    read = ReadPage(made(name))
    fragments = {unquote(href[1:]) for href in read.hrefs if href.startswith("#")}
    assert fragments - set(read.ids) == set()


@EVERY
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    for tag, attributes in ReadPage(made(name)).elements:
        if tag in ("link", "script"):
            address = attributes.get("href") or attributes.get("src") or ""
            assert address == "data:," or address.lstrip("./").startswith("assets/")


def test_the_assets_are_those_of_the_pages() -> None:
    assert {"atlas.css", "atlas.js"} <= {path.name for path in pages.ASSETS.iterdir()}
