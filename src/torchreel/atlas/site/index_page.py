"""The front page: the sources, the run, and where its time went."""

from __future__ import annotations

from torchreel.atlas.site.facts import IndexFacts, Site
from torchreel.atlas.site.frame import framed, rendered
from torchreel.atlas.site.sections import COMMANDS


def index_page(facts: IndexFacts, site: Site) -> str:
    """The whole page."""
    files = sum(root.files for root in facts.roots)
    body = rendered("index.html", facts=facts, site=site, files=files, commands=COMMANDS)
    return framed(site, facts.page, site.title, body)
