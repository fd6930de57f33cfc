"""The pages that are not of one file: front page, folders, keywords, operators, the tour; search, and `llms.txt`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchreel.atlas import search_index, tree
from torchreel.atlas.generate import folders, keyword_index
from torchreel.atlas.generate.folders import Folder
from torchreel.atlas.generate.rows import Merged
from torchreel.atlas.generate.state import KeywordIndex, Record
from torchreel.atlas.model import Costs, Link
from torchreel.atlas.site import pages, paths
from torchreel.atlas.site.facts import IndexFacts, RootRow, Site, SummaryRow
from torchreel.atlas.site.markdown import llms_text
from torchreel.atlas.site.output import remove, write_bytes, write_text

if TYPE_CHECKING:
    from torchreel.atlas.costs import RunCosts
    from torchreel.atlas.generate.line_links import Lines
    from torchreel.atlas.generate.run import Run
    from torchreel.atlas.operators import Operators


class Indices:
    """Writes what is made of all files together."""

    def __init__(
        self,
        site: Path,
        about: Site,
        roots: Sequence[tree.Root],
        records: Mapping[int, Record],
        costs: RunCosts | None,
        merged: Merged,
        keywords: KeywordIndex,
        split: frozenset[str],
    ) -> None:
        self._site, self._about, self._roots, self._records = site, about, roots, records
        self._costs, self._merged, self._keywords, self._split = costs, merged, keywords, split
        self._folders = folders.folders_of([root.name for root in roots], records.values())
        self.written: list[str] = []

    def write(
        self,
        before: Mapping[int, Record],
        words: Collection[str] | None,
        touched: Collection[int],
        users: Mapping[int, int],
    ) -> None:
        """Write the pages that `touched` files, read again or gone, can have changed; all, if there were none.

        `words` are the keywords whose places have changed; None means all.
        """
        first = not before
        self._folder_pages(before, touched)
        self._keyword_pages(
            None if words is None else {paths.keyword_page(word, self._split) for word in words},
        )
        self._search(before, touched, users)
        if self._costs is not None or any(_told(before.get(one)) != _told(self._records.get(one)) for one in touched):
            self._text("llms.txt", llms_text(self._about, self._summary()))
        if first:
            self._search_page()
            self._assets()

    def _text(self, path: str, text: str) -> None:
        if write_text(self._site, path, text):
            self.written.append(path)

    def _folder_pages(self, before: Mapping[int, Record], touched: Collection[int]) -> None:
        """The folders above files that were touched, and those that are gone."""
        keys = {self._records[file].key for file in touched if file in self._records}
        keys |= {before[file].key for file in touched if file in before}
        for root, path in sorted({(root, folder) for root, file in keys for folder in _above(file)}):
            folder = self._folders.get((root, path))
            if folder is None:
                remove(self._site, paths.folder_page(root, path))
                continue
            speaker = folder.speaker
            doc = self._merged.documentation(speaker.id) if speaker is not None else ""
            facts = folders.facts_of(folder, doc, self._split, self._folder_costs, self._file_costs())
            self._text(folder.page, pages.folder_page(facts, self._about))

    def _folder_costs(self, root: str, path: str) -> Costs | None:
        return self._costs.folders.get((root, path), Costs()) if self._costs is not None else None

    def _file_costs(self) -> Mapping[int, Costs] | None:
        return self._costs.files if self._costs is not None else None

    def _keyword_pages(self, wanted: set[str] | None) -> None:
        if wanted is not None and not wanted:
            return
        there: set[str] = set()
        for facts in keyword_index.pages(self._records, self._keywords, self._split, wanted):
            there.add(facts.page)
            self._text(facts.page, pages.keyword_page(facts, self._about))
        gone = wanted - there if wanted is not None else self._pages_in("keywords") - there
        for page in gone:
            remove(self._site, page)

    def _pages_in(self, folder: str) -> set[str]:
        return {path.relative_to(self._site).as_posix() for path in (self._site / folder).glob("**/*.html")}

    def _search(self, before: Mapping[int, Record], touched: Collection[int], users: Mapping[int, int]) -> None:
        titles = {
            file: search_index.FileTitle(
                record.names.path.rpartition("/")[2],
                paths.href("", record.names.page),
                "/".join(record.key),
                users.get(file, 0),
            )
            for file, record in self._records.items()
        }
        entries = {file: self._records[file].details().entries for file in touched if file in self._records}
        if before:
            had = {file: before[file].details().entries for file in touched if file in before}
            self.written += search_index.update(self._site, titles, entries, had)
        else:
            self.written += search_index.write(self._site, titles, entries)

    def _search_page(self) -> None:
        body = search_index.search_body()
        self._text(
            "search.html", pages.framed(self._about, "search.html", "Search", body, scripts=search_index.SCRIPTS)
        )

    def write_front(self, run: Run | None, operators: Operators, lines: Lines) -> None:
        """Write the front page, and, of a run, its tour."""
        facts = IndexFacts([self._root_row(self._folders[root.name, ""]) for root in self._roots])
        if run is not None and self._costs is not None:
            from torchreel.atlas.generate import run_pages

            run_pages.fill_index(facts, run, self._costs, operators, lines, self._merged.symbols)
            tour = run_pages.tour_facts(run, self._costs, lines)
            self._text(tour.page, pages.tour_page(tour, self._about))
        self._text(facts.page, pages.index_page(facts, self._about))

    def write_operators(self, recorded: bool, operators: Operators, lines: Lines) -> None:
        """Write the pages of operators."""
        from torchreel.atlas.generate import operator_facts

        index = operator_facts.operators_index(operators, recorded)
        self._text(index.page, pages.ops_page(index, self._about))
        there = {index.page}
        for operator in operator_facts.operator_pages(operators, recorded, lines):
            there.add(operator.page)
            self._text(operator.page, pages.op_page(operator, self._about))
        for page in self._pages_in("ops") - there:
            remove(self._site, page)

    def _root_row(self, folder: Folder) -> RootRow:
        below = list(folder.below())
        languages = Counter(record.names.language for record in below)
        return RootRow(
            Link(folder.root, paths.href("index.html", folder.page)),
            folder.count,
            folder.lines,
            sum(record.bytes for record in below),
            folder.symbols,
            sorted(languages.items(), key=lambda one: (-one[1], one[0])),
            self._folder_costs(folder.root, ""),
        )

    def _summary(self) -> Iterator[SummaryRow]:
        costs = self._file_costs()
        for record in sorted(self._records.values(), key=lambda one: one.key):
            root, path = record.key
            link = Link(f"{root}/{path}", paths.href("llms.txt", paths.twin(root, path)))
            yield SummaryRow(link, record.sentence, costs.get(record.id, Costs()) if costs is not None else None)

    def _assets(self) -> None:
        for asset in sorted(pages.ASSETS.iterdir()):
            path = f"assets/{asset.name}"
            if write_bytes(self._site, path, asset.read_bytes()):
                self.written.append(path)


def _told(record: Record | None) -> str | None:
    """What `llms.txt` says of a file."""
    return record.sentence if record is not None else None


def _above(path: str) -> Iterator[str]:
    """The folders above a file, the root as an empty path."""
    while path:
        path = path.rpartition("/")[0]
        yield path
