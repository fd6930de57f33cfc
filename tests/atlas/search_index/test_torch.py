"""Search held to real trees: sources of PyTorch, and all Python of the torch that is installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.atlas import pytorch_sources
from tests.atlas.search_index.wanted import WANTED, WANTED_IN_SOURCES
from torchreel.atlas.installed import torch_sources
from torchreel.atlas.model import Parsed
from torchreel.atlas.read import language_of, parse
from torchreel.atlas.read.languages import CPP, PYTHON
from torchreel.atlas.references import NAME, Resolver
from torchreel.atlas.search_index import FileTitle, entries, search, write
from torchreel.atlas.symbols import Catalog, Defined, FileNames, anchors_of, ids_of, module_names


class Indexed(NamedTuple):
    """A site with nothing but an index."""

    site: Path
    source_bytes: int

    @property
    def index_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.site / "search").iterdir())


def sources_in(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Path, language and text of each file of Python and C++."""
    for path in sorted(folder.rglob("*")):
        language = language_of(path.name) if path.is_file() else None
        if language in (PYTHON, *CPP):
            yield path.relative_to(folder).as_posix(), language, path.read_text("utf-8", "replace")


def referring(parsed: dict[str, Parsed], above: str) -> Counter[int]:
    """How many files refer to each."""
    packages = frozenset(path.rpartition("/")[0] for path in parsed if path.endswith("__init__.py"))
    files = []
    for number, (path, one) in enumerate(parsed.items()):
        anchors = anchors_of(one.symbols)
        defined = [
            Defined(symbol.name, symbol.scope, symbol.kind, anchor, id_, symbol.declaration)
            for symbol, anchor, id_ in zip(one.symbols, anchors, ids_of(number, anchors), strict=True)
        ]
        modules = module_names(path, packages, above)
        files.append(FileNames(number, above, path, "", one.language, modules, defined, one.imports))
    resolver = Resolver(Catalog(files))
    count: Counter[int] = Counter()
    for file, one in zip(files, parsed.values(), strict=True):
        meanings = resolver.meanings(file, one.uses)
        count.update({meaning.file for meaning in meanings if meaning.how != NAME} - {-1, file.id})
    return count


def indexed(folder: Path, root: str, site: Path, ending: str = "") -> Indexed:
    texts = [one for one in sources_in(folder) if one[0].endswith(ending)]
    parsed = {path: parse(text, language) for path, language, text in texts}
    counts = referring(parsed, root)
    titles = {
        number: FileTitle(path.rpartition("/")[2], f"files/{number}.html", f"{root}/{path}", counts[number])
        for number, path in enumerate(parsed)
    }
    words = {number: entries(f"{root}/{path}", one) for number, (path, one) in enumerate(parsed.items())}
    write(site, titles, words)
    return Indexed(site, sum(len(text.encode()) for _, _, text in texts))


def not_found(site: Path, wanted: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """The queries whose file is not among the first three, with what was found instead."""
    found = {words: [one["path"] for one in search(site, words, 3)] for words in wanted}
    return {words: paths for words, paths in found.items() if not set(wanted[words]) & set(paths)}


def test_what_is_looked_for_in_sources_of_pytorch_is_found(tmp_path: Path) -> None:
    index = indexed(pytorch_sources.directory(), "pytorch", tmp_path)
    assert not_found(index.site, WANTED_IN_SOURCES) == {}


@pytest.mark.long
def test_what_is_looked_for_in_torch_is_found(tmp_path: Path) -> None:
    index = indexed(torch_sources(), "torch", tmp_path, ".py")
    assert not_found(index.site, WANTED) == {}
    assert index.index_bytes <= 0.15 * index.source_bytes
