"""Symbols: their ids in the tables and on pages, and the index of all that the files of an atlas define."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from torchreel.atlas.model import Import, Symbol
from torchreel.atlas.read.languages import CPP, PYTHON

_BITS = 39  # of a symbol's id are a hash of its name and scope, the rest is the file's id
MOST_FILES = 1 << 63 - _BITS
_RULER = re.compile(r"([=\-*#~_/+])\1{3,}")
# A full stop after a short form ends none, nor does one before a word in small letters.
_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)[.!?](?=\s+[^a-z\s]|\s*$)")
_NOT_IN_AN_ID = re.compile(r"[\s\x00-\x1f]+")


def ids_of(file: int, anchors: Sequence[str]) -> list[int]:
    """The id of each symbol of a file in the tables: it stays the same while name, scope and file do."""
    taken: dict[int, None] = {}
    for anchor in anchors:
        found = int.from_bytes(hashlib.blake2b(anchor.encode("utf-8", "replace"), digest_size=5).digest(), "big") >> 1
        while found in taken:
            found = (found + 1) % (1 << _BITS)
        taken[found] = None
    return [file << _BITS | found for found in taken]


def anchors_of(symbols: Sequence[Symbol]) -> list[str]:
    """The id of each symbol on its file's page: its name with its scope, which moved lines do not change."""
    seen: dict[str, int] = {}
    anchors = []
    for symbol in symbols:
        name = "d." + qualified(symbol.scope, symbol.name)
        name = _NOT_IN_AN_ID.sub("-", name)
        count = seen[name] = seen.get(name, 0) + 1
        anchors.append(name if count == 1 else f"{name}~{count}")
    return anchors


def qualified(scope: str, name: str, language: str = PYTHON) -> str:
    """A name with its scope, joined as its language does."""
    if not scope:
        return name
    return f"{scope}::{name}" if language in CPP else f"{scope}.{name}"


def first_sentence(doc: str) -> str:
    """The first sentence of a docstring or comment, on one line."""
    paragraph = " ".join(_RULER.sub(" ", doc).strip().partition("\n\n")[0].split())
    end = _SENTENCE_END.search(paragraph)
    return paragraph[: end.end()] if end else paragraph


class Defined(msgspec.Struct, array_like=True):
    """What other files need to know of a symbol."""

    name: str
    scope: str
    kind: str
    anchor: str
    """Its id on the page of its file."""
    id: int
    """Its id in the tables."""
    declaration: bool


class FileNames(msgspec.Struct, array_like=True):
    """What other files need to know of a file."""

    id: int
    root: str
    path: str
    page: str
    language: str
    modules: list[str]
    """For Python: the dotted names by which it can be imported, the surest first."""
    symbols: list[Defined]
    imports: list[Import]


def group_of(language: str) -> str:
    """Languages whose names mean the same things."""
    if language == PYTHON:
        return PYTHON
    return "c++" if language in CPP else "other"


class Catalog:
    """What all files of an atlas define, by name, by module and by path.

    Most of it is made when it is first asked for: after a small change few names are.
    """

    def __init__(self, files: Iterable[FileNames]) -> None:
        self.files = {file.id: file for file in files}
        self._named: dict[str, list[tuple[int, int]]] = {}
        self.modules: dict[str, list[int]] = {}
        self.by_ending: dict[str, list[int]] = {}
        for file in self.files.values():
            self.by_ending.setdefault(file.path.rpartition("/")[2], []).append(file.id)
            for module in file.modules:
                self.modules.setdefault(module, []).append(file.id)
        self.tops = functools.cache(self._tops)
        self.exports = functools.cache(self._exports)
        self.stars = functools.cache(self._stars)

    def look_up(self, names: Iterable[str]) -> None:
        """Find the definitions of names, which `named` gives from then on: all in one go over all files."""
        new = {name for name in names if name not in self._named}
        if not new:
            return
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in new}
        for file in self.files.values():
            for index, symbol in enumerate(file.symbols):
                if symbol.name in found:
                    found[symbol.name].append((file.id, index))
        self._named.update(found)

    def named(self, name: str, group: str) -> list[tuple[int, int]]:
        """All definitions of a name, as file and index, in languages of a group; of all, for a text."""
        found = self._named[name]
        if group == "other" or not found:
            return found
        return [one for one in found if group_of(self.files[one[0]].language) == group]

    def defined(self, file: int, index: int) -> Defined:
        return self.files[file].symbols[index]

    def _tops(self, file: int) -> dict[str, int]:
        """The symbols of a Python file by qualified name. Later definitions win, as they do when the file runs."""
        return {qualified(one.scope, one.name): index for index, one in enumerate(self.files[file].symbols)}

    def _exports(self, file: int) -> dict[str, str]:
        """What a Python file imports, by the name that it has there."""
        imports = (one for one in self.files[file].imports if not one.star)
        return {one.local or one.target.rpartition(".")[2]: one.target for one in imports}

    def _stars(self, file: int) -> list[str]:
        return [one.target for one in self.files[file].imports if one.star]


def module_names(path: str, packages: frozenset[str], above: str) -> list[str]:
    """The dotted names by which a Python file of a root can be imported.

    `packages` are the folders of the root that have an `__init__.py`, as paths, the root as an empty one; `above` is
    the name of the root's own folder, which begins the name where the root itself is a package.
    """
    parts = path.removesuffix(".pyi").removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    folder = path.rpartition("/")[0]
    top = folder
    while top and top in packages:
        top = top.rpartition("/")[0]
    depth = len(top.split("/")) if top else 0
    names = []
    if not top and "" in packages and folder in packages | {""}:
        names.append(".".join([above, *parts]))
    names.append(".".join(parts[depth:]))
    names.append(".".join(parts))
    return list(dict.fromkeys(name for name in names if name))
