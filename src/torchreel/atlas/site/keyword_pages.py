"""The keywords of one letter with all places of each. There are hundreds of thousands, so they are joined plainly."""

from __future__ import annotations

from html import escape
from itertools import groupby

from torchreel.atlas.model import Link
from torchreel.atlas.site.facts import KeywordFacts, KeywordRow, Site
from torchreel.atlas.site.format import count_text, writable
from torchreel.atlas.site.frame import framed
from torchreel.atlas.site.paths import href, keyword_anchor

_BLOCK = 50  # keywords that a browser lays out at once


def keyword_page(facts: KeywordFacts, site: Site) -> str:
    """The whole page. Each keyword has the id by which sources link to it."""
    groups = [_group(keyword, list(rows)) for keyword, rows in groupby(facts.rows, key=lambda row: row.keyword)]
    blocks = ["".join(groups[start : start + _BLOCK]) for start in range(0, len(groups), _BLOCK)]
    words = "".join(f'<dl class="words block">\n{block}</dl>\n' for block in blocks)
    if groups:
        lead = f"{count_text(len(groups), 'keyword')}, with every file that defines, uses or speaks of it."
    else:
        lead = "Its keywords are under their second letters." if facts.seconds else "No keywords are on this page."
    body = (
        f'<header class="head">\n<h1>Keywords: {escape(facts.letter)}</h1>\n<p class="lead">{lead}</p>\n</header>\n'
        f"{_letters(facts, facts.letters)}{_letters(facts, facts.seconds)}{words}"
    )
    return framed(site, facts.page, f"Keywords: {facts.letter} · {site.title}", writable(body))


def _letters(facts: KeywordFacts, links: list[Link]) -> str:
    """Links to other pages of the index; those that lead here, or to the letter of this page, are marked."""
    if not links:
        return ""
    here = href(facts.page, facts.page)
    letter = facts.letter.partition("-")[0]
    parts = []
    for link in links:
        current = ' aria-current="page"' if link.href == here or link.text == letter else ""
        parts.append(f'<a href="{escape(link.href)}"{current}>{escape(link.text)}</a>')
    return f'<nav class="letters" aria-label="Letters">{" ".join(parts)}</nav>\n'


def _group(keyword: str, rows: list[KeywordRow]) -> str:
    places = "".join(map(_places, rows))
    return f'<dt id="{escape(keyword_anchor(keyword))}">{escape(keyword)}</dt>\n<dd>{places}</dd>\n'


def _places(row: KeywordRow) -> str:
    return f'<p><span class="kind">{escape(row.kind)}</span> {", ".join(map(_place, row.links))}</p>'


def _place(link: Link) -> str:
    text = f'<a href="{escape(link.href)}">{escape(link.text)}</a>' if link.href else escape(link.text)
    return f"{text} <small>{escape(link.note)}</small>" if link.note else text
