"""A site of `torchreel atlas` beside the viewer: which of its files are served, and which page a source file has.

Only a site that was made from the viewed reel is served. Its pages share the viewer's origin, so a folder from
elsewhere must not get there: `atlas.json` has to name this very recording.

What can be served is listed from the disk, without following links; a request chooses from that list and never names a
path. The list is made anew when the site is.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchreel.errors import AtlasError, first_line
from torchreel.reel import Reel

AT = "/atlas/"
_ABOUT = "atlas.json"
_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".md": "text/plain",
    ".txt": "text/plain",
}
"""Of what a browser shows; tables and what the next run needs are not served."""
_PLAIN = "/._-~+@,="


@dataclass(frozen=True)
class _Page:
    address: str
    lines: int
    sha256: str


@dataclass
class _Listed:
    """What a site holds, as it was when `atlas.json` had this stamp."""

    stamp: tuple[int, ...]
    why: str | None
    """Why nothing of it is served, if so."""
    files: dict[str, Path] = field(default_factory=dict)
    pages: dict[str, _Page] = field(default_factory=dict)
    """By the path that the reel has."""


class AtlasSite:
    """The site that `torchreel view --atlas` was given."""

    def __init__(self, site: str | os.PathLike[str], reel: Reel) -> None:
        self._site = Path(site)
        self._reel = reel
        self._lock = threading.Lock()
        self._listed: _Listed | None = None
        self._about()

    def file(self, path: str) -> tuple[bytes, str] | None:
        """The bytes and the kind of a file of the site, by its path there; None if there is none to serve."""
        listed = self._now()
        found = listed.files.get(path or "index.html")
        data = _content(found) if found is not None else None
        return None if found is None or data is None else (data, _KINDS[found.suffix])

    def page_of(self, file: str) -> dict[str, Any]:
        """Where the site shows a source file that the reel names, or why it does not."""
        listed = self._now()
        page = listed.pages.get(file)
        why = listed.why
        if why is None and page is None:
            why = "This file is in no source folder of the atlas."
        elif page is not None and self._differs(file, page.sha256):
            why = "The atlas has another version of this file than the recording: lines may have moved."
        return {
            "site": AT if listed.why is None else None,
            "page": page.address if page is not None else None,
            "lines": page.lines if page is not None else 0,
            "why": why,
        }

    def _differs(self, file: str, sha256: str) -> bool:
        """Whether the reel knows which bytes of a file ran, and these are others."""
        table = self._reel.table("sources", ["path", "sha256"])
        pairs = zip(table["path"].to_pylist(), table["sha256"].to_pylist(), strict=True)
        known = {one for path, one in pairs if path == file and one is not None}
        return bool(known) and sha256 not in known

    def _now(self) -> _Listed:
        with self._lock:
            stamp = self._stamp()
            if self._listed is None or self._listed.stamp != stamp:
                self._listed = self._look(stamp)
            return self._listed

    def _stamp(self) -> tuple[int, ...]:
        try:
            status = (self._site / _ABOUT).stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _look(self, stamp: tuple[int, ...]) -> _Listed:
        try:
            why = self._why_not()
            return _Listed(stamp, why) if why else _Listed(stamp, None, _files(self._site), self._pages())
        except AtlasError as error:
            return _Listed(stamp, str(error))

    def _why_not(self) -> str | None:
        from torchreel.atlas.reel_key import reel_key

        about = self._about()
        made_from = about.get("reel")
        if not about.get("complete"):
            return "The atlas is not whole: the run that makes it goes on, or was ended."
        if not isinstance(made_from, dict) or made_from.get("key") != reel_key(self._reel):
            return "The atlas was not made from this reel."
        return None

    def _about(self) -> dict[str, Any]:
        path = self._site / _ABOUT
        if not path.is_file():
            raise AtlasError(
                f"{self._site} is not a site of torchreel (it has no {_ABOUT}): name a folder that 'torchreel atlas' "
                "wrote."
            )
        try:
            about = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise AtlasError(f"{path} cannot be read ({first_line(error, 200)}): make the site anew.") from None
        if not isinstance(about, dict):
            raise AtlasError(f"{path} is not that of a site: make the site anew.")
        return about

    def _pages(self) -> dict[str, _Page]:
        """The pages of the files that the run entered. The table `lines` has their paths as the reel has them."""
        from torchreel.atlas import tables
        from torchreel.atlas.site.paths import file_page

        named = tables.read(self._site, "lines", ["path", "file"])
        numbers = dict(zip(named["path"].to_pylist(), named["file"].to_pylist(), strict=True))
        files = {row["id"]: row for row in tables.read(self._site, "files", _OF_FILES).to_pylist()}
        return {
            path: _Page(AT + quote(file_page(row["root"], row["path"]), safe=_PLAIN), row["lines"], row["sha256"])
            for path, number in numbers.items()
            if number is not None and (row := files.get(number)) is not None
        }


_OF_FILES = ["id", "root", "path", "lines", "sha256"]


def _files(site: Path) -> dict[str, Path]:
    """The regular files of a site that a browser shows, by their paths in it; links are left out."""
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(site, followlinks=False):
        folders[:] = [name for name in folders if not Path(folder, name).is_symlink()]
        for name in names:
            path = Path(folder, name)
            if path.suffix in _KINDS and _is_regular(path):
                found[path.relative_to(site).as_posix()] = path
    return found


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # gone since
        return False


def _content(path: Path) -> bytes | None:
    """The bytes of a file, unless it has become something else than a regular one since it was listed."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None
