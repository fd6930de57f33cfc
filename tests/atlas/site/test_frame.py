"""The frame around every page."""

from __future__ import annotations

import re

import pytest

from tests.atlas.site.example_facts import SITE
from tests.atlas.site.read_html import ReadPage
from torchreel.atlas.model import Link
from torchreel.atlas.site.frame import POLICY, framed, trail_to


def test_links_of_the_frame_begin_at_the_top_of_the_site() -> None:
    page = framed(SITE, "a/b/c.html", "T", "<p>body</p>\n", [Link("up", "../x.html")], scripts=["assets/more.js"])
    read = ReadPage(page)
    assert read.hrefs == [
        "#~text",
        "../../index.html",
        "../../keywords/N.html",
        "../../tour.html",
        "../x.html",
    ]
    sources = [attributes["src"] for tag, attributes in read.elements if tag == "script"]
    assert sources == ["../../assets/atlas.js", "../../assets/more.js"]
    forms = [attributes for tag, attributes in read.elements if tag == "form"]
    assert [(form["class"], form["action"]) for form in forms] == [("search", "../../search.html")]


def test_a_page_at_the_top_goes_up_nowhere() -> None:
    assert "../" not in framed(SITE, "search.html", "Search", "")


def test_the_body_stands_as_it_is_behind_the_way_to_it() -> None:
    page = framed(SITE, "p.html", "T\0", "<p>\0</p>\n", [Link("\0", "x")], "<ul><li>\0</li></ul>\n")
    assert "<span>/</span></nav>\n<p>\0</p>\n</main>" in page
    assert page.count("\0") == 1


@pytest.mark.parametrize("word", ["unsafe-inline", "unsafe-eval", "http:", "https:", "*"])
def test_the_policy_allows_no_scripts_of_others(word: str) -> None:
    assert word not in POLICY


def test_the_policy_is_on_the_page() -> None:
    [content] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', framed(SITE, "p.html", "T", ""))
    assert content == POLICY
    assert POLICY.startswith("default-src 'none'; ")


def test_the_trail_leads_from_the_root_to_the_folder() -> None:
    assert trail_to("files/app/a/b/c.py.html", "app", "a/b/c.py") == [
        Link("app", "../../../../folders/app/index.html"),
        Link("a", "../../../../folders/app/a/index.html"),
        Link("b", "../../../../folders/app/a/b/index.html"),
    ]
    assert trail_to("folders/app/index.html", "app", "") == []
