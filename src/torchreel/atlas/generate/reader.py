"""Reads, resolves and writes the files of one process's share, in three rounds that the build asks for.

1. `read`: each file by itself. What other files need to know of it goes to the build; the rest stays here.
2. `resolve`: with what all files define, each name finds its meaning. References and keywords go to the build.
3. `page`: with costs, and with who refers to whom, the page and its Markdown twin are written.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchreel.atlas import keywords, markup, tree
from torchreel.atlas.model import (
    Costs,
    FileFacts,
    Import,
    Keyword,
    LineKernel,
    LineOp,
    Link,
    Parsed,
    Registration,
    Symbol,
)
from torchreel.atlas.read import parse, plain_source
from torchreel.atlas.references import MOST_LISTED, NAME, Meaning, Resolver
from torchreel.atlas.search_index.entries import entries as words_of
from torchreel.atlas.site import paths
from torchreel.atlas.site.facts import Site
from torchreel.atlas.site.file_page import file_page
from torchreel.atlas.site.markdown import markdown_twin
from torchreel.atlas.site.outline import outline
from torchreel.atlas.site.output import write_text
from torchreel.atlas.symbols import (
    Catalog,
    Defined,
    FileNames,
    anchors_of,
    first_sentence,
    ids_of,
)
from torchreel.atlas.texts import Texts

HOW = (None, "scope", "import", "name")
"""The values of references.how, in the order of their codes."""


class Task(msgspec.Struct, array_like=True):
    """A file to read."""

    id: int
    root: str
    directory: str
    path: str
    language: str
    plain: bool = False
    """Read it as a text without structure: its reader ended with the process."""

    @property
    def source(self) -> tree.Source:
        return tree.Source(tree.Root(self.root, Path(self.directory)), self.path, self.language)


class SymbolRows(msgspec.Struct, array_like=True):
    """The rows of a file in the table `symbols`, column by column: numbers as their bytes."""

    ids: bytes
    names: Texts
    scopes: Texts
    kinds: Texts
    lines: bytes
    end_lines: bytes
    signatures: Texts
    docs: Texts
    declarations: bytes

    @classmethod
    def of(cls, symbols: Sequence[Symbol], ids: Sequence[int]) -> SymbolRows:
        return cls(
            np.array(ids, np.int64).tobytes(),
            Texts.of([symbol.name for symbol in symbols]),
            Texts.of([symbol.scope for symbol in symbols]),
            Texts.of([symbol.kind for symbol in symbols]),
            np.array([symbol.line for symbol in symbols], np.int32).tobytes(),
            np.array([symbol.end_line for symbol in symbols], np.int32).tobytes(),
            Texts.of([symbol.signature for symbol in symbols]),
            Texts.of([symbol.doc for symbol in symbols]),
            bytes(symbol.declaration for symbol in symbols),
        )


class Facts(msgspec.Struct, array_like=True):
    """What the build needs to know of a file after the first round."""

    id: int
    sha256: str
    bytes: int
    lines: int
    doc: str
    first_sentence: str
    errors: int
    symbols: list[Defined]
    imports: list[Import]
    registrations: list[Registration]
    terms: list[str]
    """The names by which documents are counted, for keywords."""
    entries: msgspec.Raw
    """For the search: `Entries`. They are many, and wanted at the end."""
    rows: SymbolRows | None
    """None when they are in a table."""


class Resolved(msgspec.Struct, array_like=True):
    """What the build needs to know of a file after the second round."""

    id: int
    targets: list[int]
    """The file of each import, or -1."""
    links: dict[int, int]
    """How many references mean each other file, and no third one."""
    keywords: list[Keyword]
    used: bytes
    """Of all names that it uses or defines a hash in 32 bits each."""
    names: list[str]
    """References, by columns: the names; then, for each row, the index of its name, line, column, symbol or -1, how."""
    name: bytes
    line: bytes
    column: bytes
    symbol: bytes
    how: bytes


class Context(msgspec.Struct):
    """What the page of a file says that the file itself does not."""

    id: int
    commit: str = ""
    state: str = ""
    imported_by: list[Link] = []
    tests: list[Link] = []
    related: list[Link] = []
    registration_links: list[str] = []
    recorded: bool = False
    costs: Costs | None = None
    symbol_costs: dict[int, Costs] = {}
    line_costs: dict[int, Costs] = {}
    line_ops: list[LineOp] = []
    line_kernels: list[LineKernel] = []
    line_peaks: dict[int, int] = {}


@dataclass
class _Held:
    """A file between the rounds."""

    task: Task
    parsed: Parsed
    text: str
    marked: str
    facts: Facts
    anchors: list[str]
    lines: NDArray[np.int32]
    columns: NDArray[np.int32]
    slots: NDArray[np.int32]
    meanings: list[Meaning]
    targets: list[int]
    keywords: list[Keyword]
    resolved: bool = False


class Reader:
    """Holds the files of its share from the first round to the last."""

    def __init__(self, site: Path) -> None:
        self._site = site
        self._held: dict[int, _Held] = {}
        self.know(Catalog([]), {}, 0)

    def read(self, task: Task) -> Facts | None:
        """Read one file; None if it can no longer be read."""
        data = tree.content(task.source)
        if data is None:
            return None
        text = tree.text(data, task.language)
        parsed = _unstructured(text) if task.plain else parse(text, task.language)
        anchors = anchors_of(parsed.symbols)
        ids = ids_of(task.id, anchors)
        facts = Facts(
            task.id,
            tree.digest(data),
            len(data),
            tree.line_count(text),
            parsed.doc,
            first_sentence(parsed.doc),
            len(parsed.errors),
            [
                Defined(symbol.name, symbol.scope, symbol.kind, anchor, number, symbol.declaration)
                for symbol, anchor, number in zip(parsed.symbols, anchors, ids, strict=True)
            ],
            parsed.imports,
            parsed.registrations,
            list(keywords.names_counted(parsed)),
            msgspec.Raw(msgspec.msgpack.encode(words_of(f"{task.root}/{task.path}", parsed))),
            SymbolRows.of(parsed.symbols, ids),
        )
        marked = markup.marked(text, parsed.tokens)
        lines, columns, slots = (np.array(one, np.int32) for one in (parsed.lines, parsed.columns, parsed.slots))
        parsed.tokens, parsed.lines, parsed.columns, parsed.slots = [], [], [], []
        self._held[task.id] = _Held(task, parsed, text, marked, facts, anchors, lines, columns, slots, [], [], [])
        return facts

    def know(self, catalog: Catalog, counts: Mapping[str, int], documents: int) -> None:
        """What all files define, and in how many of all documents each name is."""
        self._catalog = catalog
        self._resolver = Resolver(catalog)
        self._counts, self._documents = counts, documents

    def resolve(self) -> Iterator[Resolved]:
        """Find what the names of the files that were read since the last time mean."""
        waiting = [held for _, held in sorted(self._held.items()) if not held.resolved]
        self._catalog.look_up(use.name for held in waiting for use in held.parsed.uses)
        for held in waiting:
            held.resolved = True
            yield self._resolve(held)

    def _resolve(self, held: _Held) -> Resolved:
        resolver = self._resolver
        file = self._catalog.files[held.task.id]
        held.meanings = resolver.meanings(file, held.parsed.uses)
        held.targets = [resolver.imported(file, one.target) for one in held.parsed.imports]
        occurrences = np.bincount(held.slots, minlength=len(held.parsed.uses))
        links: Counter[int] = Counter()
        for meaning, count in zip(held.meanings, occurrences.tolist(), strict=True):
            if meaning.file >= 0 and meaning.file != file.id:
                links[meaning.file] += count
        name, line, column, symbol, how = _reference_rows(held, self._catalog)
        names: dict[str, int] = {}
        codes = [names.setdefault(use.name, len(names)) for use in held.parsed.uses]
        parsed = held.parsed
        parsed.lines, parsed.slots = held.lines.tolist(), held.slots.tolist()
        held.keywords = keywords.keywords(parsed, self._counts, self._documents)
        parsed.lines, parsed.slots, parsed.prose = [], [], ""
        return Resolved(
            file.id,
            held.targets,
            dict(links),
            held.keywords,
            hashes_of({*(use.name for use in parsed.uses), *(symbol.name for symbol in parsed.symbols)}),
            list(names),
            np.array(codes, np.int32)[name].tobytes() if codes else b"",
            line.tobytes(),
            column.tobytes(),
            symbol.tobytes(),
            how.tobytes(),
        )

    def page(self, context: Context, about: Site, split: frozenset[str]) -> list[str]:
        """Write the page of a file and its twin. Returns the paths of those that were not there, or were different.

        `split` are the letters of the keyword index that have a page for each second letter.
        """
        held = self._held.pop(context.id)
        page = paths.file_page(held.task.root, held.task.path)
        facts = self._file_facts(held, context, page, split)
        written = []
        twin = paths.twin(held.task.root, held.task.path)
        entries = outline(facts)
        for path, text in ((page, file_page(facts, about, entries)), (twin, markdown_twin(facts, about, entries))):
            if write_text(self._site, path, text):
                written.append(path)
        return written

    def _file_facts(self, held: _Held, context: Context, page: str, split: frozenset[str]) -> FileFacts:
        parsed, catalog = held.parsed, self._catalog
        named = zip(parsed.uses, held.meanings, strict=True)
        links = [self._opening(page, use.name, meaning, split) for use, meaning in named]
        return FileFacts(
            root=held.task.root,
            path=held.task.path,
            page=page,
            language=parsed.language,
            lines=held.facts.lines,
            bytes=held.facts.bytes,
            sha256=held.facts.sha256,
            commit=context.commit,
            state=context.state,
            doc=parsed.doc,
            errors=parsed.errors,
            symbols=parsed.symbols,
            anchors=held.anchors,
            symbol_costs=context.symbol_costs,
            imports=[
                Link(one.target, paths.href(page, catalog.files[to].page) if to >= 0 else "", str(one.line))
                for one, to in zip(parsed.imports, held.targets, strict=True)
            ],
            imported_by=context.imported_by,
            registrations=parsed.registrations,
            registration_links=context.registration_links,
            looks=parsed.looks,
            tests=context.tests,
            related=context.related,
            keywords=held.keywords,
            recorded=context.recorded,
            costs=context.costs,
            line_costs=context.line_costs,
            line_ops=context.line_ops,
            line_kernels=context.line_kernels,
            line_peaks=context.line_peaks,
            body=markup.linked(held.marked, links),
            text=held.text,
        )

    def _opening(self, page: str, name: str, meaning: Meaning, split: frozenset[str]) -> str:
        """The start tag of the link of a name; empty if it leads nowhere."""
        files = self._catalog.files
        if meaning.symbols and meaning.file >= 0:
            file, index = meaning.symbols[0]
            target = paths.href(page, files[file].page, files[file].symbols[index].anchor)
        elif meaning.symbols:
            target = paths.href(page, paths.keyword_page(name, split), paths.keyword_anchor(name))
        elif meaning.file >= 0:
            target = paths.href(page, files[meaning.file].page)
        else:
            return ""
        return f'<a class="maybe" href="{target}">' if meaning.how == NAME else f'<a href="{target}">'


def _unstructured(text: str) -> Parsed:
    parsed = plain_source.parse(text, "text")
    parsed.errors = [1]
    return parsed


def _reference_rows(held: _Held, catalog: Catalog) -> tuple[NDArray[Any], ...]:
    """A row for each use of a name, and for each symbol that it may mean, as columns."""
    listed, first, how = [], [], []
    at = 0
    flat: list[int] = []
    for meaning in held.meanings:
        symbols = meaning.symbols if 0 < len(meaning.symbols) <= MOST_LISTED else ()
        flat += [catalog.defined(*one).id for one in symbols] or [-1]
        count = max(len(symbols), 1)
        listed.append(count)
        first.append(at)
        how.append(HOW.index(meaning.how))
        at += count
    slots = held.slots
    counts = np.array(listed, np.int64)[slots] if len(slots) else np.zeros(0, np.int64)
    rows = np.repeat(np.arange(len(slots)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    of_row = slots[rows]
    symbol = np.array(flat or [-1], np.int64)[np.array(first or [0], np.int64)[of_row] + within] if len(rows) else rows
    hows = np.array(how or [0], np.int8)[of_row] if len(rows) else np.zeros(0, np.int8)
    return of_row.astype(np.int32), held.lines[rows], held.columns[rows], symbol.astype(np.int64), hows


def hashes_of(names: Iterable[str]) -> bytes:
    """A number of 32 bits for each name: two names may have the same."""
    return np.fromiter((zlib.crc32(name.encode()) for name in sorted(names)), np.uint32).tobytes()


def names_of(task: Task, facts: Facts, modules: list[str]) -> FileNames:
    """What other files need to know of a file."""
    page = paths.file_page(task.root, task.path)
    return FileNames(task.id, task.root, task.path, page, task.language, modules, facts.symbols, facts.imports)


def is_test(path: str) -> bool:
    """Whether a file is one of tests, by its name or its folder."""
    *folders, name = path.split("/")
    stem = name.partition(".")[0]
    return stem.startswith("test_") or stem.endswith(("_test", "_tests")) or bool({"test", "tests"} & set(folders))
