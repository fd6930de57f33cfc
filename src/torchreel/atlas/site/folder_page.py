"""The page of a folder: its folders and files, what they say of themselves, and what a run cost in them."""

from __future__ import annotations

from torchreel.atlas.site.bars import scale_of
from torchreel.atlas.site.facts import FolderFacts, FolderRow, Site
from torchreel.atlas.site.frame import framed, rendered, trail_to


def folder_page(facts: FolderFacts, site: Site) -> str:
    """The whole page."""
    name = facts.path.rpartition("/")[2] or facts.root
    body = rendered(
        "folder.html",
        facts=facts,
        name=name,
        folders_costed=_costed(facts.subfolders),
        folders_scale=scale_of(row.costs for row in facts.subfolders),
        files_costed=_costed(facts.files),
        files_scale=scale_of(row.costs for row in facts.files),
    )
    title = f"{facts.root}/{facts.path}" if facts.path else facts.root
    return framed(site, facts.page, title, body, trail_to(facts.page, facts.root, facts.path))


def _costed(rows: list[FolderRow]) -> bool:
    """Whether there is anything to say in the columns of costs."""
    return any(row.costs is not None for row in rows)
