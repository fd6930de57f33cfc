"""Calls as columns: what a lane is made of, read from the table `ops`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchreel.reel.reel import Process
from torchreel.reel.tables import MODULES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

COLUMNS = ["id", "thread", "name", "kind", "start_ns", "dur_ns", "depth", "async", "module"]
ModuleNames = Mapping[int, str]
"""The end of each module's path, by its id: what its calls are called, beside its class."""


class Labels:
    """Names and kinds of calls by number, the same for all processes of a reel; of a module also which one it is."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._all: list[tuple[str, str, str]] = []

    def number(self, name: str, kind: str, module: str = "") -> int:
        label = (name, kind, module)
        number = self._numbers.setdefault(label, len(self._all))
        if number == len(self._all):
            self._all.append(label)
        return number

    def __getitem__(self, number: int) -> tuple[str, str, str]:
        return self._all[number]

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)


@dataclass(frozen=True)
class Calls:
    """Calls in any order. Times are nanoseconds since the reel's beginning."""

    starts: Ints
    durations: Ints
    ids: NDArray[Any]
    labels: NDArray[np.uint16]

    @staticmethod
    def of(table: pa.Table, origin: int, labels: Labels, modules: ModuleNames) -> Calls:
        """The calls in columns COLUMNS of `ops`."""
        starts, durations, ids = (numbers(table, name) for name in ("start_ns", "dur_ns", "id"))
        if len(ids) and ids.max() <= np.iinfo(np.int32).max:
            ids = ids.astype(np.int32)
        return Calls(starts - origin, np.maximum(durations, 0), ids, _label_numbers(table, labels, modules))

    @staticmethod
    def joined(parts: Sequence[Calls]) -> Calls:
        """Of at least one part."""
        if len(parts) == 1:
            return parts[0]
        columns = ([getattr(part, field.name) for part in parts] for field in fields(Calls))
        return Calls(*map(np.concatenate, columns))

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, which: Any) -> Calls:
        return Calls(self.starts[which], self.durations[which], self.ids[which], self.labels[which])

    def sorted(self) -> Calls:
        return self.take(np.argsort(self.starts, kind="stable"))


def numbers(table: pa.Table, name: str, otherwise: int = 0) -> Ints:
    """A column of whole numbers, with another one where there is none."""
    column = table[name]
    if column.null_count and column.type.bit_width <= 32:  # such are exact as floats, and need no pyarrow.compute
        return np.asarray(np.nan_to_num(column.to_numpy(zero_copy_only=False), nan=otherwise), np.int64)
    if column.null_count:
        column = column.fill_null(otherwise)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def dictionary(table: pa.Table, name: str) -> tuple[NDArray[Any], list[str]]:
    """A column of texts: the index of each row in the list of texts; one without a text has an empty one."""
    column = table[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    texts = ["" if text is None else str(text) for text in column.dictionary.to_pylist()]
    indices = column.indices.fill_null(len(texts)) if column.null_count else column.indices
    return indices.to_numpy(zero_copy_only=False), [*texts, ""]


def module_names(process: Process) -> ModuleNames:
    """Of layers.0 both parts: a number alone says nothing."""
    table = process.table(MODULES, ["id", "path"])
    return {
        number: ".".join(parts[-2:] if parts[-1].isdecimal() else parts[-1:])
        for number, path in zip(table["id"].to_pylist(), table["path"].to_pylist(), strict=True)
        if (parts := (path or "").split("."))[-1]
    }


def _label_numbers(table: pa.Table, labels: Labels, modules: ModuleNames) -> NDArray[np.uint16]:
    (name_of, names), (kind_of, kinds) = (dictionary(table, name) for name in ("name", "kind"))
    pair = name_of * np.int64(len(kinds)) + kind_of
    found = np.zeros(len(names) * len(kinds), np.int64)
    for index in np.flatnonzero(np.bincount(pair, minlength=len(found))):
        if modules and kinds[index % len(kinds)] == "module":
            continue
        found[index] = labels.number(names[index // len(kinds)], kinds[index % len(kinds)])
    # More names than a label can tell apart share the last one: a view of them is a blur all the same.
    result: NDArray[np.uint16] = np.minimum(found, _MOST_LABELS).astype(np.uint16)[pair]
    if modules and "module" in kinds:
        calls = np.flatnonzero(kind_of == kinds.index("module"))
        which = numbers(table, "module", otherwise=-1)[calls] + 1
        width = int(which.max(initial=0)) + 1
        keys, at = np.unique(name_of[calls] * np.int64(width) + which, return_inverse=True)
        of_modules = [
            labels.number(names[key // width], "module", modules.get(key % width - 1, "")) for key in keys.tolist()
        ]
        result[calls] = np.minimum(np.array(of_modules, np.int64), _MOST_LABELS).astype(np.uint16)[at.ravel()]
    return result


_MOST_LABELS = np.iinfo(np.uint16).max
