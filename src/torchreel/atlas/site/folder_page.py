"""The page of a folder: its folders and files, what they say of themselves, and what a run cost in them."""

from __future__ import annotations

from html import escape

from torchreel.atlas.site.bars import scale_of
from torchreel.atlas.site.facts import FolderFacts, FolderRow, Site
from torchreel.atlas.site.format import writable
from torchreel.atlas.site.frame import framed, trail_to
from torchreel.atlas.site.parts import (
    cards,
    cost_cells,
    cost_heads,
    count_cell,
    empty_text,
    legend,
    link,
    section,
    table,
)
from torchreel.atlas.site.prose import inline, prose
from torchreel.atlas.site.sections import language_text


def folder_page(facts: FolderFacts, site: Site) -> str:
    """The whole page."""
    name = facts.path.rpartition("/")[2] or facts.root
    doc = f'<blockquote class="prose">\n{prose(facts.doc)}</blockquote>\n' if facts.doc.strip() else ""
    sections = [
        section("Folders", "folders", _folders(facts.subfolders)),
        section("Files", "files", _files(facts.files)),
        section("Keywords", "keywords", _keywords(facts)),
    ]
    body = (
        f'<header class="head">\n<h1>{escape(name)}<span class="soft">/</span></h1>\n</header>\n{doc}{_cost(facts)}\n'
        + "\n".join(sections)
    )
    title = f"{facts.root}/{facts.path}" if facts.path else facts.root
    return framed(site, facts.page, title, writable(body), trail_to(facts.page, facts.root, facts.path))


def _cost(facts: FolderFacts) -> str:
    if facts.costs is None:
        return ""
    if facts.costs.calls or facts.costs.total_ns:
        return section("Cost", "cost", cards(facts.costs) + legend())
    return section("Cost", "cost", empty_text("The run was recorded, and spent nothing in this folder."))


def _folders(rows: list[FolderRow]) -> str:
    if not rows:
        return empty_text("There are no folders in it.")
    heads = (
        '<th>name</th><th class="wide">its first sentence</th><th class="n">files</th><th class="n">lines</th>'
        '<th class="n">symbols</th>'
    )
    return _rows(heads, rows, [count_cell(row.files) for row in rows])


def _files(rows: list[FolderRow]) -> str:
    if not rows:
        return empty_text("There are no source files right in it.")
    heads = (
        '<th>name</th><th class="wide">its first sentence</th><th>language</th><th class="n">lines</th>'
        '<th class="n">symbols</th>'
    )
    return _rows(heads, rows, [f"<td>{escape(language_text(row.language))}</td>" for row in rows])


def _rows(heads: str, rows: list[FolderRow], thirds: list[str]) -> str:
    """A table of files or folders; they differ in the third column."""
    costed = any(row.costs is not None for row in rows)  # else there is nothing to say in these columns
    scale = scale_of(row.costs for row in rows)
    cells = [
        f'<td class="name">{link(row.link)}</td><td class="doc">{inline(row.doc)}</td>{third}{count_cell(row.lines)}'
        f"{count_cell(row.symbols)}{cost_cells(row.costs, scale) if costed else ''}"
        for row, third in zip(rows, thirds, strict=True)
    ]
    return table(heads + (cost_heads() if costed else ""), cells, "sortable")


def _keywords(facts: FolderFacts) -> str:
    if not facts.keywords:
        return empty_text("No keywords were found below it.")
    return f'<p class="chips">{"".join([f"{link(to)} " for to in facts.keywords])}</p>\n'
