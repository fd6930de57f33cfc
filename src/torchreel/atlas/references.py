"""References: what each name that a file uses means, with the files of all roots at hand.

How a name is known: `scope`, by the scopes of its own file; `import`, through an import or an #include; `name`, only
the name agrees: then every definition of that name is meant as much as any other. Nothing is chosen among them.
"""

from __future__ import annotations

import builtins
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.atlas.model import Use
from torchreel.atlas.read.languages import PYTHON
from torchreel.atlas.symbols import Catalog, FileNames, group_of

SCOPE, IMPORT, NAME = "scope", "import", "name"
MOST_LISTED = 8
"""A name with more definitions than this is one reference without a symbol; the keyword index lists all of them."""
_BUILTIN = frozenset(dir(builtins))


@dataclass(frozen=True)
class Meaning:
    """What a use means: symbols as file and index, or a file as a whole."""

    how: str | None = None
    symbols: tuple[tuple[int, int], ...] = ()
    file: int = -1


_UNKNOWN = Meaning()


class Resolver:
    """Finds what names mean. One for all files of a process: what paths lead to is remembered."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._paths: dict[str, Meaning] = {}
        self._included: dict[int, frozenset[int]] = {}

    def meanings(self, file: FileNames, uses: Sequence[Use]) -> list[Meaning]:
        group = group_of(file.language)
        stars = self._stars(file) if group == PYTHON else []
        self._catalog.look_up(use.name for use in uses)
        return [self._meaning(file, use, group, stars) for use in uses]

    def imported(self, file: FileNames, target: str) -> int:
        """The file that an import, an #include or a path names; -1 if it is in no root."""
        return self._module(self._whole(file, target)) if file.language == PYTHON else self._path(file, target)

    def _module(self, path: str) -> int:
        """The module that an import of a dotted path runs: the longest one that the path begins with."""
        parts = path.split(".")
        for length in range(len(parts), 0, -1):
            files = self._catalog.modules.get(".".join(parts[:length]))
            if files:
                return files[0]
        return -1

    def _meaning(self, file: FileNames, use: Use, group: str, stars: list[str]) -> Meaning:
        if use.symbol >= 0:
            return Meaning(SCOPE, ((file.id, use.symbol),), file.id)
        if use.path:
            found = self._dotted(self._whole(file, use.path))
            # A path whose last part is not found leads nowhere: the file that holds it is not what is named.
            return Meaning(IMPORT, found.symbols, found.file if found.how is None or found.symbols else -1)
        if group == PYTHON:
            if use.name in _BUILTIN:
                return _UNKNOWN
            for star in stars:
                found = self._dotted(f"{star}.{use.name}")
                if found.symbols:
                    return Meaning(IMPORT, found.symbols, found.file)
        named = self._catalog.named(use.name, group)
        if group == "c++" and named:
            near = self._nearby(file)
            direct = tuple(one for one in named if one[0] in near)
            if direct:
                return Meaning(IMPORT if direct[0][0] != file.id else SCOPE, direct, _only_file(direct))
        return Meaning(NAME, tuple(named), _only_file(named)) if named else _UNKNOWN

    def _stars(self, file: FileNames) -> list[str]:
        return [self._whole(file, target) for target in self._catalog.stars(file.id)]

    def _nearby(self, file: FileNames) -> frozenset[int]:
        """The file itself and what it includes."""
        found = self._included.get(file.id)
        if found is None:
            targets = {self._path(file, one.target) for one in file.imports}
            found = self._included[file.id] = frozenset(targets - {-1} | {file.id})
        return found

    def _whole(self, file: FileNames, path: str) -> str:
        """A dotted path without leading dots: relative ones begin at the package of the file."""
        if not path.startswith("."):
            return path
        name = path.lstrip(".")
        up = len(path) - len(name)
        package = file.modules[0].split(".") if file.modules else []
        if not file.path.endswith(("/__init__.py", "/__init__.pyi")) and file.path not in (
            "__init__.py",
            "__init__.pyi",
        ):
            package = package[:-1]
        package = package[: len(package) - (up - 1)] if up > 1 else package
        return ".".join([*package, name] if name else package)

    def _dotted(self, path: str) -> Meaning:
        """What a whole dotted path names: `how` is None for a file as a whole, NAME for a part that is not there."""
        found = self._paths.get(path)
        if found is None:
            found = self._paths[path] = self._follow(path, set())
        return found

    def _follow(self, path: str, seen: set[tuple[int, str]]) -> Meaning:
        """`seen` are the modules that were asked so far, and for which name: they may import each other."""
        parts = path.split(".")
        for length in range(len(parts), 0, -1):
            files = self._catalog.modules.get(".".join(parts[:length]))
            if not files:
                continue
            rest = parts[length:]
            if not rest:
                return Meaning(None, (), files[0])
            for file in files:
                found = self._within(file, rest, seen)
                if found is not None:
                    return found
            return Meaning(NAME, (), files[0])
        return _UNKNOWN

    def _within(self, file: int, rest: list[str], seen: set[tuple[int, str]]) -> Meaning | None:
        """What `rest`, a name and perhaps attributes of it, is in a module."""
        catalog = self._catalog
        index = catalog.tops(file).get(".".join(rest))
        if index is not None:
            return Meaning(IMPORT, ((file, index),), file)
        if (file, rest[0]) in seen:
            return None
        seen.add((file, rest[0]))
        names = catalog.files[file]
        exported = catalog.exports(file).get(rest[0])
        if exported is not None:
            found = self._follow(".".join([self._whole(names, exported), *rest[1:]]), seen)
            if found.file >= 0 and (found.symbols or found.how is None):
                return found
        for star in self._stars(names):
            found = self._follow(".".join([star, *rest]), seen)
            if found.symbols:
                return found
        return None

    def _path(self, file: FileNames, target: str) -> int:
        """The file that a path in a text means: one beside the text, else the only one in the roots that ends so."""
        target = posixpath.normpath(target.replace("\\", "/")).lstrip("/")
        found = self._catalog.by_ending.get(target.rpartition("/")[2], [])
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), target))
        files = self._catalog.files
        ending = "/" + target
        matching = []
        for one in found:
            path = files[one].path
            if path == beside and files[one].root == file.root:
                return one
            if path == target or path.endswith(ending):
                matching.append(one)
        return matching[0] if len(matching) == 1 else -1


def _only_file(symbols: Sequence[tuple[int, int]]) -> int:
    """The file of all symbols, if it is one."""
    first = symbols[0][0]
    return first if all(file == first for file, _ in symbols) else -1
