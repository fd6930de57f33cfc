"""Which files have to be read again because of what changed in others.

A page says what the names in it mean, which keywords are rare, and who imports the file. All of these can change
without a change of the file itself. What is found here may be more than what changes, never less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from torchreel.atlas.generate.reader import hashes_of
from torchreel.atlas.generate.state import Record
from torchreel.atlas.keywords import rarity
from torchreel.atlas.symbols import FileNames


def changed_names(before: FileNames | None, after: FileNames | None) -> set[str]:
    """The names whose definitions, or ways to them, a change of a file touches."""
    return {name for name, _ in _definitions(before) ^ _definitions(after)}


def _definitions(file: FileNames | None) -> set[tuple[str, str]]:
    if file is None:
        return set()
    defined = {(symbol.name, f"{symbol.anchor} {symbol.declaration}") for symbol in file.symbols}
    handed_on = {(one.local or one.target.rpartition(".")[2], one.target) for one in file.imports}
    return defined | handed_on


def stars(file: FileNames | None) -> list[str]:
    return sorted(one.target for one in file.imports if one.star) if file is not None else []


def counted(
    counts: Mapping[str, int], before: Iterable[Iterable[str]], after: Iterable[Iterable[str]]
) -> dict[str, int]:
    """In how many files each name is, when files with these names are replaced by others."""
    result: Counter[str] = Counter(counts)
    for names in before:
        result.subtract(names)
    for names in after:
        result.update(names)
    return {name: count for name, count in result.items() if count > 0}


def rarer(before: Mapping[str, int], after: Mapping[str, int], names: Iterable[str], documents: int) -> set[str]:
    """The names that count as rarer or more common than before."""
    return {
        name
        for name in names
        if name in before and name in after and rarity(before[name], documents) != rarity(after[name], documents)
    }


def users(records: Mapping[int, Record], names: Collection[str]) -> set[int]:
    """The files that use or define one of these names; perhaps others, whose names have the same hash."""
    if not names or not records:
        return set()
    files = list(records)
    used = np.frombuffer(b"".join([records[file].used for file in files]), np.uint32)
    ends = np.cumsum([len(records[file].used) // used.itemsize for file in files])
    found = np.flatnonzero(np.isin(used, np.frombuffer(hashes_of(names), np.uint32)))
    return {files[at] for at in np.unique(np.searchsorted(ends, found, "right")).tolist()}


def importers(records: Iterable[Record], files: Collection[FileNames]) -> set[int]:
    """The files with an import, an #include or a path that may mean one of these: files that come or go."""
    names = {name for file in files for module in file.modules for name in (module.rpartition(".")[2],)}
    endings = {file.path.rpartition("/")[2] for file in files}
    return {
        record.id
        for record in records
        if any(
            not names.isdisjoint(one.target.split(".")) or one.target.rpartition("/")[2] in endings
            for one in record.names.imports
        )
    }


def neighbours(before: Record | None, after: Record | None) -> set[int]:
    """The files whose pages say something of a file: whom it imports, and whom it refers to how often."""
    links_before = before.links if before is not None else {}
    links_after = after.links if after is not None else {}
    linked = {
        file for file in links_before.keys() | links_after.keys() if links_before.get(file) != links_after.get(file)
    }
    targets_before = set(before.targets) if before is not None else set()
    targets_after = set(after.targets) if after is not None else set()
    return (linked | (targets_before ^ targets_after)) - {-1}
