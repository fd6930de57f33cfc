"""The page of results. What stands here is for a script to fill: without one it says how else to search."""

from __future__ import annotations

SCRIPTS = ("assets/search.js",)
"""What the page loads, by their paths from the top of the site."""


def search_body() -> str:
    """The body of `search.html`, which lies at the top of the site; the field is in the header, as on every page."""
    return """<link rel="stylesheet" href="assets/search.css">
<h1>Search</h1>
<noscript>
<p>A script shows the results here. Without one, ask Python: <code>torchreel.atlas.search(site, words)</code>.</p>
</noscript>
<p id="search-status" class="search-status" role="status"></p>
<ol id="search-results" class="search-results"></ol>
"""
