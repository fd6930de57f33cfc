"""Rows of the tables: those of files that were read, put in the place of those that they had.

The rows of a file are kept as bytes, column by column, until a table is written. In each file of a table they are in
the order of the files' ids, so what a file had is a slice, and nothing has to be searched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from torchreel.atlas import arrays, tables
from torchreel.atlas.generate.reader import HOW, Resolved, SymbolRows
from torchreel.atlas.generate.state import Record
from torchreel.atlas.model import Import, Keyword
from torchreel.atlas.tables import COSTS, MOST_ROWS, PARTS, TABLES
from torchreel.atlas.texts import Texts
from torchreel.reel.tables import TEXT

if TYPE_CHECKING:
    from torchreel.atlas.costs import RunCosts
    from torchreel.atlas.operators import Operators

_COST_NAMES = {name for name, _, _ in COSTS}
_OF_KERNELS = "^at::native(::|$)"
OF_FILES = ("symbols", "imports", "keywords", "references")
"""The tables whose rows belong to one file each."""


class _Imports(msgspec.Struct):
    lines: bytes
    targets: Texts
    to: bytes


class _Keywords(msgspec.Struct):
    keywords: Texts
    kinds: Texts
    lines: bytes
    counts: bytes


class _References(msgspec.Struct):
    names: Texts
    name: bytes
    line: bytes
    column: bytes
    symbol: bytes
    how: bytes


_Rows = SymbolRows | _Imports | _Keywords | _References


class Fresh:
    """The rows of the files that this run reads, table by table and file by file."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, Any]] = {name: {} for name in OF_FILES}
        self.docs: dict[int, str] = {}

    def add_symbols(self, file: int, doc: str, symbols: SymbolRows) -> None:
        self.docs[file] = doc
        self.tables["symbols"][file] = symbols

    def add_resolved(self, resolved: Resolved, imports: Sequence[Import]) -> None:
        file = resolved.id
        self.tables["imports"][file] = _Imports(
            _int32(one.line for one in imports), Texts.of([one.target for one in imports]), _int32(resolved.targets)
        )
        self.tables["keywords"][file] = _keywords(resolved.keywords)
        self.tables["references"][file] = _References(
            Texts.of(resolved.names),
            resolved.name,
            resolved.line,
            resolved.column,
            resolved.symbol,
            resolved.how,
        )


def _int32(values: Any) -> bytes:
    return np.fromiter(values, np.int32).tobytes()


def _keywords(keywords: Sequence[Keyword]) -> _Keywords:
    return _Keywords(
        Texts.of([one.keyword for one in keywords]),
        Texts.of([one.kind for one in keywords]),
        _int32(one.line for one in keywords),
        _int32(one.count for one in keywords),
    )


class Merged:
    """The tables of all files: the rows of the last run with those of this one in their places."""

    def __init__(
        self, site: Path, gone: Collection[int], fresh: Fresh, records: Mapping[int, Record], first: bool
    ) -> None:
        self._site, self._gone, self._first = site, gone, first
        for name in OF_FILES:
            self._write(name, fresh.tables[name])
            fresh.tables[name] = {}
        self.files = _files(site, fresh.docs, records, first)

    @functools.cached_property
    def symbols(self) -> pa.Table:
        """All symbols, without their texts and costs."""
        columns = ["id", "file", "name", "scope", "kind", "line", "end_line", "declaration"]
        return tables.read(self._site, "symbols", columns)

    def write(self, costs: RunCosts | None, operators: Operators) -> None:
        """Write the other tables; with the costs of a run, if there is one, also in those of files and symbols."""
        of_files = costs.columns_of_files(self.files["id"]) if costs is not None else None
        _put(self._site / "data/files.parquet", with_costs("files", self.files, of_files))
        _put(self._site / "data/operators.parquet", operators.table())
        for name in ("lines", "line_ops"):
            if costs is not None:
                tables.write(self._site, name, getattr(costs, name))
            elif self._first:
                _put(self._site / f"data/{name}.parquet", arrays.empty_table(TABLES[name].schema))
        if costs is not None:
            for path in tables.files_of(self._site, "symbols"):
                table = tables.read_file(path)
                table = table.drop_columns([name for name in table.column_names if name in _COST_NAMES])
                _put(path, with_costs("symbols", table, costs.columns_of_symbols(table["id"])))

    def _write(self, name: str, fresh: Mapping[int, Any]) -> None:
        """Write a table: as one file, or, where it has many rows, those of some files each in a part of its own."""
        old = [] if self._first else tables.files_of(self._site, name)
        written = set()
        for part in self._parts(fresh, old, name):
            path = self._site / "data" / (f"{name}-{part:02d}.parquet" if part is not None else f"{name}.parquet")
            own = {file: fresh[file] for file in sorted(fresh) if part is None or file % PARTS == part}
            if path in old:
                _put(path, _merged(name, tables.read_file(path), self._gone, own))
            else:
                _put(path, _table(name, own))
            written.add(path)
        for path in tables.files_of(self._site, name):
            if self._first and path not in written:
                path.unlink()

    def _parts(self, fresh: Mapping[int, Any], old: Sequence[Path], name: str) -> Sequence[int | None]:
        """The parts to write: None is the table as one file."""
        if len(old) > 1:
            return sorted({file % PARTS for file in {*self._gone, *fresh}})
        many = not old and sum(map(_row_count, fresh.values())) > MOST_ROWS.get(name, MOST_ROWS[""])
        return range(PARTS) if many else [None]

    def kernels(self, files: Collection[int]) -> dict[str, tuple[int, int]]:
        """File and line of functions that may be kernels of torch, by name; of those that only one file defines.

        The dispatch table means functions of `at::native`: one of the same name elsewhere is another one.
        """
        import pyarrow.compute as pc

        symbols = self.symbols
        conditions = (
            pc.invert(symbols["declaration"]),
            pc.is_in(symbols["file"], value_set=arrays.integers(sorted(files), pa.int32())),
            pc.match_substring_regex(symbols["scope"].cast(pa.string()), _OF_KERNELS),
        )
        is_one = functools.reduce(pc.and_, conditions, pc.equal(symbols["kind"], "function"))
        found: dict[str, tuple[int, int]] = {}
        several: set[str] = set()
        kept = self.symbols.select(["name", "file", "line"]).filter(is_one)
        for name, file, line in zip(*(column.to_pylist() for column in kept.columns), strict=True):
            if found.setdefault(name, (file, line))[0] != file:
                several.add(name)
        return {name: place for name, place in found.items() if name not in several}

    def documentation(self, file: int) -> str:
        """What a file says of itself."""
        return self._docs.get(file, "")

    @functools.cached_property
    def _docs(self) -> dict[int, str]:
        return dict(zip(self.files["id"].to_pylist(), self.files["doc"].to_pylist(), strict=True))


def _files(site: Path, fresh: Mapping[int, str], records: Mapping[int, Record], first: bool) -> pa.Table:
    docs: dict[int, str] = {}
    if not first:
        (path,) = tables.files_of(site, "files")
        old = tables.read_file(path, ["id", "doc"])
        docs = dict(zip(old["id"].to_pylist(), old["doc"].to_pylist(), strict=True))
    docs.update(fresh)
    found = [record for _, record in sorted(records.items())]
    columns = {
        "id": arrays.integers((record.id for record in found), pa.int32()),
        "root": arrays.texts(record.names.root for record in found),
        "path": arrays.texts(record.names.path for record in found),
        "language": arrays.texts(record.names.language for record in found),
        "bytes": arrays.integers((record.bytes for record in found), pa.int64()),
        "lines": arrays.integers((record.lines for record in found), pa.int32()),
        "sha256": arrays.texts(record.sha256 for record in found),
        "doc": arrays.texts(docs.get(record.id, "") for record in found),
        "errors": arrays.integers((record.errors for record in found), pa.int32()),
    }
    return pa.table(list(columns.values()), list(columns))


def _row_count(rows: _Rows) -> int:
    return len(rows.lines if not isinstance(rows, _References) else rows.line) // 4


def _table(name: str, rows: Mapping[int, Any]) -> pa.Table:
    """The rows of some files, in the order that they have here, without costs."""
    listed = list(rows.values())
    counts = np.fromiter(map(_row_count, listed), np.int64, len(listed))
    file = arrays.numbers(np.repeat(np.fromiter(rows, np.int32, len(listed)), counts))
    columns = _COLUMNS[name](file, listed, counts)
    return with_costs(name, pa.table(list(columns.values()), list(columns)).unify_dictionaries(), None)


def _of_symbols(file: pa.Array, rows: list[SymbolRows], counts: NDArray[np.int64]) -> dict[str, pa.Array]:
    return {
        "id": _joined((one.ids for one in rows), np.int64),
        "file": file,
        "name": arrays.joined_texts([one.names for one in rows]),
        "scope": arrays.joined_texts([one.scopes for one in rows]),
        "kind": arrays.joined_texts([one.kinds for one in rows]),
        "line": _joined((one.lines for one in rows), np.int32),
        "end_line": _joined((one.end_lines for one in rows), np.int32),
        "signature": arrays.joined_texts([one.signatures for one in rows]),
        "doc": arrays.joined_texts([one.docs for one in rows]),
        "declaration": arrays.booleans(np.frombuffer(b"".join(one.declarations for one in rows), bool)),
    }


def _of_imports(file: pa.Array, rows: list[_Imports], counts: NDArray[np.int64]) -> dict[str, pa.Array]:
    to = np.frombuffer(b"".join(one.to for one in rows), np.int32)
    return {
        "file": file,
        "line": _joined((one.lines for one in rows), np.int32),
        "target": arrays.joined_texts([one.targets for one in rows]),
        "to": arrays.numbers(to, to >= 0),
    }


def _of_keywords(file: pa.Array, rows: list[_Keywords], counts: NDArray[np.int64]) -> dict[str, pa.Array]:
    rank = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    return {
        "file": file,
        "rank": arrays.numbers(rank.astype(np.int32)),
        "keyword": arrays.joined_texts([one.keywords for one in rows]),
        "kind": arrays.joined_texts([one.kinds for one in rows]),
        "line": _joined((one.lines for one in rows), np.int32),
        "count": _joined((one.counts for one in rows), np.int32),
    }


def _of_references(file: pa.Array, rows: list[_References], counts: NDArray[np.int64]) -> dict[str, pa.Array]:
    symbols = np.frombuffer(b"".join(one.symbol for one in rows), np.int64)
    return {
        "file": file,
        "line": _joined((one.line for one in rows), np.int32),
        "column": _joined((one.column for one in rows), np.int32),
        "name": _names(rows),
        "symbol": arrays.numbers(symbols, symbols >= 0),
        "how": _hows(np.frombuffer(b"".join(one.how for one in rows), np.int8)),
    }


def _names(rows: list[_References]) -> pa.ChunkedArray:
    """A piece for each file, with its names as a dictionary; the table has one for all when it is whole."""
    pieces = [
        pa.DictionaryArray.from_arrays(
            arrays.numbers(np.frombuffer(one.name, np.int32)), arrays.joined_texts([one.names])
        )
        for one in rows
    ]
    return pa.chunked_array(pieces, TEXT)


def _hows(codes: NDArray[np.int8]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(arrays.numbers(codes.astype(np.int32) - 1, codes != 0), arrays.texts(HOW[1:]))


_COLUMNS: dict[str, Callable[[pa.Array, Any, NDArray[np.int64]], dict[str, pa.Array]]] = {
    "symbols": _of_symbols,
    "imports": _of_imports,
    "keywords": _of_keywords,
    "references": _of_references,
}


def _joined(parts: Iterator[bytes], kind: type[np.generic]) -> pa.Array:
    return arrays.numbers(np.frombuffer(b"".join(parts), kind))


def _merged(name: str, kept: pa.Table, gone: Collection[int], fresh: Mapping[int, Any]) -> pa.Table:
    """The rows that are kept and those of fresh files, in the order of files."""
    files = _file_column(kept)
    pieces = []
    at = 0
    for file in sorted({*gone, *fresh}):
        first, last = np.searchsorted(files, [file, file + 1]).tolist()
        pieces.append(kept.slice(at, first - at))
        at = last
        if file in fresh:
            pieces.append(_table(name, {file: fresh[file]}))
    return pa.concat_tables([*pieces, kept.slice(at)]).unify_dictionaries()


def _file_column(table: pa.Table) -> NDArray[np.int32]:
    """Its files as numbers: `to_numpy` would import pandas."""
    column = table["file"].combine_chunks()
    found = np.frombuffer(column.buffers()[1] or b"", np.int32)
    return found[column.offset : column.offset + len(column)]


def with_costs(name: str, table: pa.Table, costs: Mapping[str, pa.Array] | None) -> pa.Table:
    """The table with its columns of costs, if it has any: null if there are none."""
    names = TABLES[name].names
    for column, kind, _ in COSTS:
        if column in names:
            values = pa.nulls(table.num_rows, kind) if costs is None else costs[column]
            table = table.append_column(column, values)
    return table.select(names)


def _put(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
