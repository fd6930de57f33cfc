"""What stands around every page: its head and policy, the header with the search field, and the way up.

The pages open from disk, so the policy names `file:` beside 'self': Chromium takes 'self' for the files of a page from
disk, and others need not. A server's page cannot load from `file:` at all, so nothing is lost there. Nothing is loaded
from elsewhere, and no script or style within a page is run.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from torchreel._version import __version__
from torchreel.atlas import cache
from torchreel.atlas.model import Link
from torchreel.atlas.site import paths
from torchreel.atlas.site.bars import bar, scale_of
from torchreel.atlas.site.facts import Site
from torchreel.atlas.site.format import (
    bytes_text,
    count_text,
    flops_text,
    percent_text,
    time_text,
    writable,
)
from torchreel.atlas.site.performance import total_backward
from torchreel.atlas.site.prose import inline, prose
from torchreel.atlas.site.sections import language_text

POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src data:; base-uri 'none'; "
    "form-action 'self' file:"
)
_HERE = Path(__file__).parent
ASSETS = _HERE / "assets"
"""What goes into `assets/` of the site: the style sheet and the scripts."""


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
    opening, closing = _around(site, up, title, tuple(trail), contents, tuple(scripts))
    return opening + body + closing


def rendered(template: str, **facts: Any) -> str:
    """A template filled in, all text escaped and fit to be written."""
    return writable(_environment().get_template(template).render(**facts))


def trail_to(page: str, root: str, path: str) -> list[Link]:
    """The folders above a path of a root, outermost first, as links of a page."""
    folders = path.split("/")[:-1]
    trail = [Link(root, paths.href(page, paths.folder_page(root, "")))] if path else []
    for depth, name in enumerate(folders, 1):
        trail.append(Link(name, paths.href(page, paths.folder_page(root, "/".join(folders[:depth])))))
    return trail


def _around(
    site: Site, up: str, title: str, trail: tuple[Link, ...], contents: str, scripts: tuple[str, ...]
) -> tuple[str, str]:
    mark = "\0"
    whole = (
        _environment()
        .get_template("frame.html")
        .render(
            policy=POLICY,
            site=site,
            up=up,
            title=title,
            trail=trail,
            contents=Markup(contents),
            scripts=scripts,
            body=mark,
        )
    )
    opening, _, closing = whole.rpartition(mark)
    return writable(opening), writable(closing)


class _Compiled(BytecodeCache):
    """Templates as the code that they become, from one run to the next: that takes as long as a page or two."""

    def load_bytecode(self, bucket: Bucket) -> None:
        data = cache.own(self._path(bucket))
        if data is not None:
            bucket.bytecode_from_string(data)

    def dump_bytecode(self, bucket: Bucket) -> None:
        cache.keep(self._path(bucket), bucket.bytecode_to_string())

    @staticmethod
    def _path(bucket: Bucket) -> Path | None:
        """Another one for another Jinja or Python; a template that has changed is found by Jinja itself."""
        made_with = f"{jinja2.__version__} {sys.version} {__version__} {bucket.key}"
        folder = cache.folder()
        return folder / f"template-{hashlib.sha256(made_with.encode()).hexdigest()[:32]}" if folder else None


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        bytecode_cache=_Compiled(),
    )
    environment.filters.update(
        bytes=lambda size: bytes_text(size, 1),
        flops=flops_text,
        inline=lambda text: Markup(inline(text)),
        language=language_text,
        number="{:,}".format,
        prose=prose,
        time=time_text,
        writable=writable,
    )
    environment.globals.update(
        bar=bar, scale_of=scale_of, count=count_text, percent=percent_text, total_backward=total_backward
    )
    return environment
