"""Whether a site is whole: every link and anchor of its pages leads somewhere, and every table opens."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from torchreel.atlas import tables
from torchreel.errors import AtlasError


@dataclass
class Checked:
    """What a check found."""

    pages: int = 0
    links: int = 0
    problems: list[str] = field(default_factory=list)
    """A sentence each."""


class _Page(HTMLParser):
    """The links and ids of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") or (name == "action" and tag == "form"):
                self.links.add(value)


def check(site: Path) -> Checked:
    """Look at every page of a site."""
    if not (site / "atlas.json").is_file():
        raise AtlasError(
            f"{site} is not a site of torchreel (it has no atlas.json): name a folder that 'torchreel atlas' wrote."
        )
    found = Checked()
    if '"complete": true' not in (site / "atlas.json").read_text(errors="replace"):
        found.problems.append(f"{site} is not whole: the run that made it was ended. Make it again.")
    ids: dict[str, set[str]] = {}
    wanted: dict[str, list[tuple[str, str]]] = {}
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    for page in sorted(one for one in files if one.endswith(".html")):
        parsed = _Page()
        parsed.feed((site / page).read_text(encoding="utf-8", errors="replace"))
        parsed.close()
        found.pages += 1
        ids[page] = parsed.ids
        for link in sorted(parsed.links):
            found.links += 1
            problem = _problem(page, link, files, wanted)
            if problem:
                found.problems.append(problem)
    found.problems += _missing_anchors(wanted, ids)
    found.problems += _missing_pages(site, files)
    found.problems += _damaged_tables(site)
    return found


def _problem(page: str, link: str, files: set[str], wanted: dict[str, list[tuple[str, str]]]) -> str:
    """What is wrong with a link; anchors are looked at when all pages are known."""
    parts = urlsplit(link)
    if parts.scheme == "data":  # the empty icon, so that no browser asks for one
        return ""
    if parts.scheme or parts.netloc:
        return f"{page} links out of the site: {link}"
    path = unquote(parts.path)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    if target not in files:
        return f"{page} links to {target}, which is not there."
    if parts.fragment and target.endswith(".html"):
        wanted.setdefault(target, []).append((page, unquote(parts.fragment)))
    return ""


def _missing_anchors(wanted: dict[str, list[tuple[str, str]]], ids: dict[str, set[str]]) -> Iterator[str]:
    for target, links in wanted.items():
        for page, fragment in links:
            if fragment not in ids[target]:
                yield f"{page} links to {target}#{fragment}, and {target} has no such id."


def _missing_pages(site: Path, files: set[str]) -> Iterator[str]:
    """Pages that the tables promise and that no other page may link to."""
    from torchreel.atlas.site import paths

    try:
        rows = tables.read(site, "files", ["root", "path"]).to_pylist()
    except AtlasError:
        return  # said with the other tables
    for row in rows:
        for page in (paths.file_page(row["root"], row["path"]), paths.twin(row["root"], row["path"])):
            if page not in files:
                yield f"{page} is missing: the page of {row['root']}/{row['path']}."


def _damaged_tables(site: Path) -> Iterator[str]:
    for name in tables.TABLES:
        try:
            tables.read(site, name)
        except AtlasError as error:
            yield str(error)
            continue
        if not tables.files_of(site, name):
            yield f"{site} has no table {name}: make the site anew."
