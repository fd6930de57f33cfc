"""What stands around every page: its head and policy, the header with the search field, and the way up.

The pages open from disk, so the policy names `file:` beside 'self': Chromium takes 'self' for the files of a page from
disk, and others need not. A server's page cannot load from `file:` at all, so nothing is lost there. Nothing is loaded
from elsewhere, and no script or style within a page is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from torchreel.atlas.model import Link
from torchreel.atlas.site import paths
from torchreel.atlas.site.facts import Site
from torchreel.atlas.site.format import writable

POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src data:; base-uri 'none'; "
    "form-action 'self' file:"
)
ASSETS = Path(__file__).parent / "assets"
"""What goes into `assets/` of the site: the style sheet and the scripts."""

# The policy has no sign that an attribute in double quotes would have to escape.
_HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
"""
_THEME = (
    '<button class="theme" type="button" aria-label="Light or dark" hidden><svg viewBox="0 0 16 16" width="16" '
    'height="16" aria-hidden="true"><circle cx="8" cy="8" r="6.25" fill="none" stroke="currentColor" '
    'stroke-width="1.5"/><path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor"/></svg></button>'
)
_FIELD = (
    '<input type="search" name="q" placeholder="Search names, files, words" aria-label="Search" autocomplete="off">'
    "<kbd>/</kbd>"
)
_END = """</main>
</div>
<footer>Made by torchreel atlas. Every sentence here is quoted from the source or computed.</footer>
</body>
</html>
"""


def framed(
    site: Site,
    page: str,
    title: str,
    body: str,
    trail: Sequence[Link] = (),
    contents: str = "",
    scripts: Sequence[str] = (),
) -> str:
    """A whole page. `body` and `contents` (the navigation beside it) are HTML; all else is text.

    `page` is where it will lie in the site, `trail` leads from the top to it, and `scripts` are loaded behind our own,
    by their paths from the top of the site.
    """
    up = "../" * page.count("/")
    beside = f'<nav class="contents" aria-label="On this page">\n{contents}</nav>\n' if contents else ""
    opening = (
        f"{_HEAD}<title>{escape(title)}</title>\n"
        f"{_assets(up, scripts)}"
        f'<body>\n<a class="skip" href="#~text">Skip to the text</a>\n{_bar(site, up)}'
        f'<div class="page{" with-contents" if contents else ""}">\n{beside}<main id="~text">\n{_trail(trail)}'
    )
    return f"{writable(opening)}{body}{_END}"


def _assets(up: str, scripts: Sequence[str]) -> str:
    more = "".join([f'<script src="{up}{escape(script)}" defer></script>\n' for script in scripts])
    return (
        f'<link rel="icon" href="data:,">\n<link rel="stylesheet" href="{up}assets/atlas.css">\n'
        f'<script src="{up}assets/atlas.js"></script>\n{more}</head>\n'
    )


def _bar(site: Site, up: str) -> str:
    pages = "".join([f'<a href="{up}{escape(link.href)}">{escape(link.text)}</a>\n' for link in site.pages])
    return (
        f'<header class="bar">\n<a class="brand" href="{up}index.html">{escape(site.title)}</a>\n'
        f'<nav class="pages" aria-label="Site">\n{pages}</nav>\n'
        f'<form class="search" action="{up}search.html" role="search">{_FIELD}</form>\n{_THEME}\n</header>\n'
    )


def _trail(trail: Sequence[Link]) -> str:
    if not trail:
        return ""
    steps = [f'<a href="{escape(link.href)}">{escape(link.text)}</a><span>/</span>' for link in trail]
    return f'<nav class="trail" aria-label="Path">{"".join(steps)}</nav>\n'


def trail_to(page: str, root: str, path: str) -> list[Link]:
    """The folders above a path of a root, outermost first, as links of a page."""
    folders = path.split("/")[:-1]
    trail = [Link(root, paths.href(page, paths.folder_page(root, "")))] if path else []
    for depth, name in enumerate(folders, 1):
        trail.append(Link(name, paths.href(page, paths.folder_page(root, "/".join(folders[:depth])))))
    return trail
