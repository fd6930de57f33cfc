"""Where each page lies in the site.

Plain names keep their spelling: the page of `nn/linear.py` of the root `torch` is `files/torch/nn/linear.py.html`.
Names that would collide or that a file system would not carry are spelled another way, each in one way only:

- a control character, a byte that is not UTF-8 and `~` become `~` and two hexadecimal digits for each byte;
- a folder whose name ends as pages do (`a.py.html/` beside `a.py`) gets a `~` at its end;
- a name too long for a file system is cut, with a part of its hash behind.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Collection
from urllib.parse import quote

_MOST = 200  # bytes of a name, below the 255 that file systems allow, with room for endings
_UNSAFE = re.compile("[\x00-\x1f\x7f~\\\\\ud800-\udfff]")
_PAGE_ENDINGS = (".html", ".md")
_NOT_IN_AN_ID = re.compile(r"[\s\x00-\x1f]+")


def file_page(root: str, path: str) -> str:
    return f"files/{_spelled(root, path)}.html"


def twin(root: str, path: str) -> str:
    """The Markdown twin of a file's page."""
    return f"md/{_spelled(root, path)}.md"


def folder_page(root: str, path: str) -> str:
    """Of a folder; of the root, for an empty path."""
    folder = "/".join(_folder(name) for name in (root, *path.split("/")) if name)
    return f"folders/{folder}/index.html"


def keyword_page(keyword: str, split: Collection[str]) -> str:
    """The page of the index that a word is on. `split` are the letters that have a page for each second letter."""
    letter = letter_of(keyword)
    return f"keywords/{letter}{second_of(keyword)}.html" if letter in split else f"keywords/{letter}.html"


def letter_of(keyword: str) -> str:
    """The first letter of a word, behind underscores: A to Z, or `other`."""
    return _letter(keyword.lstrip("_")[:1]) or "other"


def second_of(keyword: str) -> str:
    """What follows a letter in the name of a page: -a to -z, or -other."""
    return "-" + (_letter(keyword.lstrip("_")[1:2]).lower() or "other")


def _letter(character: str) -> str:
    return character.upper() if character.isascii() and character.isalpha() else ""


def keyword_anchor(keyword: str) -> str:
    """The id of a word on its page."""
    return "k." + _NOT_IN_AN_ID.sub("-", keyword)


def operator_page(name: str) -> str:
    """Of an operator, all overloads: `ops/aten/add_.html`."""
    namespace, _, op = name.rpartition("::")
    return f"ops/{_spelled(namespace or 'other', op.replace('/', '~2F'))}.html"


def href(page: str, target: str, anchor: str = "") -> str:
    """The link from one page of the site to another, quoted for a URL; an anchor within the same page stands alone."""
    within = ""
    if anchor:
        within = fragment(anchor)
        if page == target:
            return within
    return _relative(page.rpartition("/")[0], target) + within


def fragment(anchor: str) -> str:
    """The link to an anchor of the same page. Colons, which most names of C++ have, need no quotes there."""
    return "#" + (anchor if _NEEDS_NO_QUOTES.fullmatch(anchor) else quote(anchor, safe=_PLAIN + ":"))


_PLAIN = "/._-~+@,="
_NEEDS_NO_QUOTES = re.compile(r"[\w./~+@,=:-]*", re.ASCII)


@functools.lru_cache(1 << 14)
def _relative(start: str, target: str) -> str:
    """The way from a folder of the site to a page, quoted. Most links of a page lead to few others."""
    common = 0
    if start:
        ours, theirs = start.split("/"), target.split("/")
        while common < min(len(ours), len(theirs) - 1) and ours[common] == theirs[common]:
            common += 1
        target = "../" * (len(ours) - common) + "/".join(theirs[common:])
    return quote(target, safe=_PLAIN)


def _spelled(root: str, path: str) -> str:
    *folders, name = (root, *path.split("/"))
    return "/".join([*(_folder(folder) for folder in folders), _plain(name)])


def _folder(name: str) -> str:
    spelled = _plain(name)
    return spelled + "~" if spelled.endswith(_PAGE_ENDINGS) else spelled


def _plain(name: str) -> str:
    spelled = _UNSAFE.sub(lambda found: "".join(f"~{byte:02X}" for byte in _bytes(found[0])), name)
    if spelled in (".", ".."):
        spelled = spelled.replace(".", "~2E")
    encoded = spelled.encode("utf-8", "surrogateescape")
    if len(encoded) > _MOST:
        digest = hashlib.sha256(_bytes(name)).hexdigest()[:12]
        spelled = encoded[: _MOST - 14].decode("utf-8", "ignore") + "~" + digest
    return spelled


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
