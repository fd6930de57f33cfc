"""The tour: the files in the order in which the run entered them."""

from __future__ import annotations

from torchreel.atlas.site.bars import scale_of
from torchreel.atlas.site.facts import Site, TourFacts
from torchreel.atlas.site.frame import framed, rendered


def tour_page(facts: TourFacts, site: Site) -> str:
    """The whole page."""
    body = rendered("tour.html", facts=facts, scale=scale_of((stop.costs for stop in facts.stops), below=True))
    return framed(site, facts.page, f"Tour · {site.title}", body)
