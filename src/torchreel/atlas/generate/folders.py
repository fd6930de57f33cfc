"""Folders: what stands on their pages, put together from the files below them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torchreel.atlas.generate.state import Record
from torchreel.atlas.model import Costs, Link
from torchreel.atlas.site import paths
from torchreel.atlas.site.facts import FolderFacts, FolderRow

_MOST_KEYWORDS = 40
# Whose own text speaks for its folder, the best first.
_SPEAKERS = ("__init__.py", "README.md", "README.rst", "README.txt", "README")

CostsOf = Callable[[str, str], Costs | None]
"""The costs of a folder of a root; None without a reel."""


@dataclass
class Folder:
    """A folder of a root with all that is below it."""

    root: str
    path: str
    files: list[Record] = field(default_factory=list)
    """In it, by name."""
    folders: list[Folder] = field(default_factory=list)
    count: int = 0
    """Files below it; lines and symbols are theirs."""
    lines: int = 0
    symbols: int = 0

    @property
    def page(self) -> str:
        return paths.folder_page(self.root, self.path)

    @property
    def speaker(self) -> Record | None:
        named = {record.names.path.rpartition("/")[2]: record for record in self.files}
        return next((named[name] for name in _SPEAKERS if name in named and named[name].sentence), None)

    def below(self) -> Iterator[Record]:
        yield from self.files
        for folder in self.folders:
            yield from folder.below()


def folders_of(roots: Iterable[str], records: Iterable[Record]) -> dict[tuple[str, str], Folder]:
    """All folders that hold files, by root and path; roots have an empty path, and are there without files, too."""
    found: dict[tuple[str, str], Folder] = {(root, ""): Folder(root, "") for root in roots}
    for record in sorted(records, key=lambda one: one.key):
        root, path = record.key
        folder = _folder(found, root, path.rpartition("/")[0])
        folder.files.append(record)
        while True:
            folder.count += 1
            folder.lines += record.lines
            folder.symbols += len(record.names.symbols)
            if not folder.path:
                break
            folder = found[root, folder.path.rpartition("/")[0]]
    return found


def _folder(found: dict[tuple[str, str], Folder], root: str, path: str) -> Folder:
    missing = []
    while (root, path) not in found:
        missing.append(path)
        path = path.rpartition("/")[0]
    for one in reversed(missing):
        found[root, one] = Folder(root, one)
        found[root, one.rpartition("/")[0]].folders.append(found[root, one])
    return found[root, missing[0] if missing else path]


def facts_of(
    folder: Folder, doc: str, split: Collection[str], costs: CostsOf, file_costs: Mapping[int, Costs] | None
) -> FolderFacts:
    """What stands on the page of a folder. `doc` is what its speaker says."""
    page = folder.page
    words: dict[str, int] = {}
    for record in folder.below():
        for place, word in enumerate(record.words):
            words[word] = words.get(word, 0) + 5 - place
    best = sorted(words, key=lambda word: (-words[word], word))[:_MOST_KEYWORDS]
    return FolderFacts(
        folder.root,
        folder.path,
        page,
        doc,
        [_folder_row(page, one, costs) for one in folder.folders],
        [_file_row(page, record, file_costs) for record in folder.files],
        costs(folder.root, folder.path),
        [Link(word, paths.href(page, paths.keyword_page(word, split), paths.keyword_anchor(word))) for word in best],
    )


def _folder_row(page: str, folder: Folder, costs: CostsOf) -> FolderRow:
    speaker = folder.speaker
    return FolderRow(
        Link(folder.path.rpartition("/")[2], paths.href(page, folder.page)),
        speaker.sentence if speaker is not None else "",
        "",
        folder.count,
        folder.lines,
        folder.symbols,
        costs(folder.root, folder.path),
    )


def _file_row(page: str, record: Record, costs: Mapping[int, Costs] | None) -> FolderRow:
    return FolderRow(
        Link(record.names.path.rpartition("/")[2], paths.href(page, record.names.page)),
        record.sentence,
        record.names.language,
        0,
        record.lines,
        len(record.names.symbols),
        costs.get(record.id, Costs()) if costs is not None else None,
    )
