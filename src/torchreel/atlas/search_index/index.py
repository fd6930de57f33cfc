"""The index: which words which files have, written as a whole or brought up to date."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchreel.atlas.search_index.classes import CLASSES
from torchreel.atlas.search_index.entries import Entries
from torchreel.atlas.search_index.shards import (
    FOLDER,
    POSTING,
    Rows,
    call,
    called,
    damaged,
    letters,
    path_of,
    read_rows,
    rows_text,
    shard_of,
    shards_in,
)
from torchreel.atlas.site.output import remove, write_text
from torchreel.atlas.words import parts, plain
from torchreel.errors import AtlasError

FILES = f"{FOLDER}/files.js"
_HIGHEST_IMPORTERS = 12  # doublings beyond which more importers say no more
_OF_TESTS = {"test", "tests", "testing"}


@dataclass(frozen=True)
class FileTitle:
    """A file, as a result shows it."""

    title: str
    href: str
    """Its page, from the top of the site, quoted for a URL."""
    path: str
    """With the name of its root in front, with slashes."""
    importers: int = 0
    """How many files import it or use what it defines: among equals, what many need is what most look for."""

    @property
    def rank(self) -> int:
        """What it is worth before a word is looked at. Importers count by doublings, so that few changes change it."""
        folders = self.path.split("/")
        hidden = sum(name.startswith("_") and name != "__init__.py" for name in folders)
        tests = any(part.lower() in _OF_TESTS for name in folders for part in parts(name))
        importers = min(self.importers.bit_length(), _HIGHEST_IMPORTERS)
        return max(0, 30 + 2 * importers - 2 * len(folders) - 5 * hidden - 10 * tests)


class FileRow(NamedTuple):
    """A file in the index."""

    title: str
    href: str
    path: str
    rank: int


def write(site: Path, files: Mapping[int, FileTitle], entries: Mapping[int, Entries]) -> list[str]:
    """Write the whole index of a site. Returns the paths of the files that were not there, or were different."""
    _demand(files, entries, files)
    numbers = _numbers(files)
    texts: dict[str, str] = dict.fromkeys(shards_in(site), "")
    for shard, rows in _by_shard(entries, numbers).items():
        texts[shard] = rows_text(shard, {word: "".join(postings) for word, postings in rows.items()})
    return _put(site, texts, files)


def update(
    site: Path,
    files: Mapping[int, FileTitle],
    entries: Mapping[int, Entries],
    had: Mapping[int, Entries] | None = None,
) -> list[str]:
    """Bring the index of a site up to date: `files` are all that there are, `entries` those of new and changed ones.

    The bytes are those that `write` would write. `had` are the words that changed files had before; of others they are
    read from the index itself. Returns the paths of the files that changed.
    """
    numbers = _numbers(files)
    before = {file.href: letters(number) for number, file in enumerate(read_files(site))}
    _demand(files, entries, [file for file in files if files[file].href not in before])
    same_files = before == {files[file].href: number for file, number in numbers.items()}
    if same_files and had is not None and had.keys() >= entries.keys():
        return _put(site, _edited_words(site, numbers, entries, had), files)
    kept = {files[file].href: numbers[file] for file in files if file not in entries}
    edit = _Edit({number: kept.get(href, "") for href, number in before.items()})
    added = _by_shard(entries, numbers)
    texts: dict[str, str] = {}
    for shard in sorted({*shards_in(site), *added}):
        if shard not in added and not edit.concerns(_text_of(site, path_of(shard))):
            continue
        rows = read_rows(site, shard)
        try:
            touched = edit.apply(rows, added.get(shard, {}))
        except KeyError as error:  # the number of a file that the list does not have
            raise damaged(site / path_of(shard)) from error
        if touched:
            texts[shard] = rows_text(shard, rows) if rows else ""
    return _put(site, texts, files)


def _edited_words(
    site: Path, numbers: Mapping[int, str], entries: Mapping[int, Entries], had: Mapping[int, Entries]
) -> dict[str, str]:
    """The shards of words that some files have and had not, had and have not, or have in another place."""
    changed: dict[str, dict[str, dict[str, str]]] = {}
    for file, now in entries.items():
        for word, mark in _changes(had[file].marks, now.marks):
            changed.setdefault(shard_of(plain(word)), {}).setdefault(word, {})[numbers[file]] = mark
    texts = {}
    for shard, words in changed.items():
        rows = read_rows(site, shard)
        for word, marks in words.items():
            postings = dict(POSTING.findall(rows.pop(word, ""))) | marks
            left = "".join(number + mark for number, mark in sorted(postings.items(), key=_in_order) if mark)
            if left:
                rows[word] = left
        texts[shard] = rows_text(shard, rows) if rows else ""
    return texts


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The words with another mark than before; an empty one, if they are gone."""
    yield from ((word, mark) for word, mark in now.items() if before.get(word) != mark)
    yield from ((word, "") for word in before if word not in now)


def read_files(site: Path) -> list[FileRow]:
    """The files of a site, by number."""
    try:
        (table,) = called(site / FILES, "files")
        return msgspec.convert(table["files"], list[FileRow])
    except FileNotFoundError as error:
        raise AtlasError(f"There is no search index: {site / FILES} is missing. Make the atlas again.") from error
    except (ValueError, TypeError, KeyError, msgspec.MsgspecError) as error:
        raise damaged(site / FILES) from error


def _numbers(files: Mapping[int, FileTitle]) -> dict[int, str]:
    """The number of each file in the index: its place among all paths, so that the list of files needs no numbers."""
    order = sorted(files, key=lambda file: (files[file].path, files[file].href))
    return {file: letters(number) for number, file in enumerate(order)}


def _by_shard(entries: Mapping[int, Entries], numbers: Mapping[int, str]) -> dict[str, dict[str, list[str]]]:
    """The postings of files by shard and word, in the order of the files."""
    shards: dict[str, dict[str, list[str]]] = {}
    for file, number in numbers.items():
        if file in entries:
            for word, mark in entries[file].marks.items():
                rows = shards.setdefault(shard_of(plain(word)), {})
                rows.setdefault(word, []).append(number + mark)
    return shards


def _put(site: Path, texts: Mapping[str, str], files: Mapping[int, FileTitle]) -> list[str]:
    """Write shards, or remove those without text, and the list of files.

    While shards change there is no list: whoever is interrupted here leaves an index that says so, not one that finds
    the words of one file in another.
    """
    shards = sorted(({*shards_in(site)} | texts.keys()) - {shard for shard, text in texts.items() if not text})
    listed = _files_text(files, shards)
    changed = [shard for shard, text in texts.items() if _text_of(site, path_of(shard)) != text]
    same = _text_of(site, FILES) == listed
    if same and not changed:
        return []
    (site / FILES).unlink(missing_ok=True)
    for shard in changed:
        if texts[shard]:
            write_text(site, path_of(shard), texts[shard])
        else:
            remove(site, path_of(shard))
    write_text(site, FILES, listed)
    return [*(path_of(shard) for shard in changed), *([] if same else [FILES])]


def _text_of(site: Path, path: str) -> str:
    """The text of a file; an empty one if there is none."""
    try:
        return (site / path).read_text("utf-8")
    except FileNotFoundError:
        return ""


class _Edit:
    """What happens to the postings of files that were there before: they go, or get another number."""

    _MOST_ALTERNATIVES = 16  # beyond these, to look at every posting takes less time

    def __init__(self, renumbered: Mapping[str, str]) -> None:
        self._renumbered = renumbered
        different = [number for number, now in renumbered.items() if number != now]
        self._any = bool(different)
        self._gone: re.Pattern[str] | None = None
        """The postings that go, if they are few and no file gets another number."""
        if different and len(different) <= self._MOST_ALTERNATIVES and not any(map(renumbered.get, different)):
            self._gone = re.compile(rf"(?<![a-z])(?:{'|'.join(different)})[A-Z][A-Z0-9]*")

    def concerns(self, text: str) -> bool:
        """Whether a shard with this text may hold a posting that changes."""
        return self._any and (self._gone is None or self._gone.search(text) is not None)

    def apply(self, rows: Rows, added: Mapping[str, Iterable[str]]) -> bool:
        """Edit the rows of a shard in place, and add postings. Returns whether anything was touched."""
        touched = bool(added)
        for word, postings in list(rows.items()) if self._any else ():
            left = self._gone.sub("", postings) if self._gone else POSTING.sub(self._posting, postings)
            if left != postings:
                rows[word] = left
                touched = True
        for word, new in added.items():
            together = POSTING.findall(rows.get(word, "") + "".join(new))
            together.sort(key=_in_order)
            rows[word] = "".join(number + mark for number, mark in together)
        for word in [word for word, postings in rows.items() if not postings]:
            del rows[word]
        return touched

    def _posting(self, found: re.Match[str]) -> str:
        number = self._renumbered[found[1]]
        return number + found[2] if number else ""


def _in_order(posting: tuple[str, str]) -> tuple[int, str]:
    """A key to sort postings by the number of the file: no number begins with a zero."""
    return len(posting[0]), posting[0]


def _demand(files: Mapping[int, FileTitle], entries: Mapping[int, Entries], needed: Iterable[int]) -> None:
    """Refuse to leave out a file without a word."""
    for file in needed:
        if file not in entries:
            path = files[file].path
            raise AtlasError(f"The search index does not know {path}, and is not told its words. Make the atlas again.")


def _files_text(files: Mapping[int, FileTitle], shards: Iterable[str]) -> str:
    """The list of files, and what the page's script needs to know: the classes of words, and which shards there are."""
    shown = (files[file] for file in _numbers(files))
    rows = [FileRow(one.title, one.href, one.path, one.rank) for one in shown]
    return call("files", {"classes": CLASSES, "shards": " ".join(shards), "files": rows})
