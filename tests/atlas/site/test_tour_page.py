"""The tour."""

from __future__ import annotations

import re

from tests.atlas.site.example_facts import SITE, tour_facts
from torchreel.atlas.site.facts import TourFacts
from torchreel.atlas.site.tour_page import tour_page


def test_stops_are_in_the_order_of_the_run() -> None:
    page = tour_page(tour_facts(), SITE)
    assert re.findall(r"Entered after ([^.]+\.\d\d µs(?:, in step \d+)?)\.", page) == ["1.50 µs, in step 0", "2.50 µs"]


def test_a_run_that_entered_no_root() -> None:
    assert "The run entered no file of this site's roots." in tour_page(TourFacts([]), SITE)
