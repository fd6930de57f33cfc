"""Regions of which the costs are asked together: lines, symbols, files and folders of an atlas, each by a key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from torchreel.analyze.source.regions import MEASURES, regions
from torchreel.atlas.model import Costs
from torchreel.reel import Reel

WHOLE = (-(1 << 31), (1 << 31) - 1)
"""All lines that a file may have."""
_PATHS = pa.schema([("path", pa.string()), ("file", pa.int64())])


@dataclass
class CostRegions:
    """What is asked, column by column."""

    _keys: list[Hashable] = field(default_factory=list)
    _files: list[int] = field(default_factory=list)
    _begins: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    def add(self, key: Hashable, file: int, begin: int = WHOLE[0], end: int = WHOLE[1]) -> None:
        """Ask for lines of a file; for all of them, if none are given."""
        self._keys.append(key)
        self._files.append(file)
        self._begins.append(begin)
        self._ends.append(end)

    def costs(self, reel: Reel, paths: Iterable[tuple[str | None, int]]) -> dict[Hashable, Costs]:
        """What they cost. A file has all of the paths that are given with it; a path may be of several files."""
        asked = pa.table(
            {
                "id": pa.array(range(len(self._keys)), pa.int64()),
                "file": pa.array(self._files, pa.int64()),
                "begin": pa.array(self._begins, pa.int64()),
                "end": pa.array(self._ends, pa.int64()),
            }
        )
        named = pa.Table.from_pylist([{"path": path, "file": file} for path, file in paths], schema=_PATHS)
        found = regions(reel, asked, named)
        columns = [found[name].to_pylist() for name in MEASURES]
        return {key: Costs(*values) for key, *values in zip(self._keys, *columns, strict=True)}
