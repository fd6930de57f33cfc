"""The keyword index: every name that a file defines and every keyword of a file, by letter, with nothing cut."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from torchreel.atlas.generate.state import KeywordIndex, Record, decoded
from torchreel.atlas.model import Keyword, Link
from torchreel.atlas.site import paths
from torchreel.atlas.site.facts import KeywordFacts, KeywordRow

_MOST_PLACES = 2_500
"""A letter whose words have more has a page for each second letter."""
LETTERS = (*string.ascii_uppercase, "other")
SECONDS = (*string.ascii_lowercase, "other")
_KINDS = {"defines": 0, "uses": 1, "speaks": 2}


class Place(NamedTuple):
    """Where a word is found."""

    keyword: str
    kind: str
    file: int
    anchor: str
    note: str


class Used(msgspec.Struct, array_like=True):
    """Where a word is used or spoken of."""

    keyword: str
    kind: str
    file: int
    line: int

    @property
    def place(self) -> Place:
        return Place(self.keyword, self.kind, self.file, f"L{self.line}", "")


Keywords = Mapping[int, Iterable[Keyword]]
"""Those of some files, by their ids."""


def places_of(record: Record, keywords: Iterable[Keyword]) -> Iterator[Place]:
    """What a file adds to the index."""
    for symbol in record.names.symbols:
        yield Place(symbol.name, "defines", record.id, symbol.anchor, symbol.kind)
    for one in _used_in(record.id, keywords):
        yield one.place


def _used_in(file: int, keywords: Iterable[Keyword]) -> Iterator[Used]:
    return (Used(one.keyword, one.kind, file, one.line) for one in keywords if one.kind != "defines")


def edited(index: KeywordIndex, before: Iterable[Record], after: Iterable[Record]) -> tuple[KeywordIndex, set[str]]:
    """The index with some files as they are now, in the place of what they were; and the words with other places."""
    changed: set[Place] = set()
    counts = Counter(index.places)
    files: set[int] = set()
    fresh: dict[str, list[Used]] = {}
    for records, sign in ((before, -1), (after, 1)):
        for record in records:
            files.add(record.id)
            keywords = record.details().keywords
            places = list(places_of(record, keywords))
            changed ^= set(places)
            for place in places:
                counts[paths.letter_of(place.keyword)] += sign
            if sign > 0:
                for one in _used_in(record.id, keywords):
                    fresh.setdefault(_key(one.keyword), []).append(one)
    used = dict(index.used)
    for key in sorted({_key(place.keyword) for place in changed if place.kind != "defines"}):
        rows = [row for row in _decoded(index, key) if row.file not in files] + fresh.get(key, [])
        used[key] = msgspec.Raw(msgspec.msgpack.encode(rows))
    return KeywordIndex(dict(counts), used), {place.keyword for place in changed}


def _key(word: str) -> str:
    """The first two letters of a word, as pages are named after them."""
    return paths.letter_of(word) + paths.second_of(word)


def _decoded(index: KeywordIndex, key: str) -> list[Used]:
    return decoded(index.used[key], list[Used]) if key in index.used else []


def split_letters(index: KeywordIndex) -> frozenset[str]:
    """The letters that have a page for each second letter."""
    return frozenset(letter for letter, count in index.places.items() if count > _MOST_PLACES)


def pages(
    records: Mapping[int, Record], index: KeywordIndex, split: Collection[str], wanted: Collection[str] | None
) -> Iterator[KeywordFacts]:
    """The pages of the index, or those of them that are wanted.

    Every letter has a page, with words or without: so a word that comes or goes changes no page but its own.
    """
    found: dict[str, Words] = {page: {} for page in _every(split) if wanted is None or page in wanted}
    for words, place in _placed(records, index, split, found):
        words.setdefault(place.keyword, []).append(place)
    for page, words in found.items():
        letter = _title(page).partition("-")[0]
        yield KeywordFacts(
            _title(page),
            page,
            [Link(one, paths.href(page, f"keywords/{one}.html")) for one in LETTERS],
            _rows(page, words, records),
            [Link(letter + one, paths.href(page, f"keywords/{letter}-{one}.html")) for one in SECONDS]
            if letter in split
            else [],
        )


def _every(split: Collection[str]) -> Iterator[str]:
    for letter in LETTERS:
        yield f"keywords/{letter}.html"
        if letter in split:
            yield from (f"keywords/{letter}-{second}.html" for second in SECONDS)


Words = dict[str, list[Place]]


def _placed(
    records: Mapping[int, Record], index: KeywordIndex, split: Collection[str], found: Mapping[str, Words]
) -> Iterator[tuple[Words, Place]]:
    """All places of words that stand on some pages, with the words of the page."""
    pages: dict[str, Words | None] = {}
    """By the first two letters, which decide the page: most words are on none of these."""
    for record in records.values():
        for symbol in record.names.symbols:
            begin = symbol.name.lstrip("_")[:2]
            try:
                words = pages[begin]
            except KeyError:
                words = pages[begin] = found.get(paths.keyword_page(begin, split))
            if words is not None:
                yield words, Place(symbol.name, "defines", record.id, symbol.anchor, symbol.kind)
    for key in index.used:
        letter = key.partition("-")[0]
        words = found.get(f"keywords/{key if letter in split else letter}.html")
        if words is not None:
            for one in _decoded(index, key):
                yield words, one.place


def _rows(page: str, words: Words, records: Mapping[int, Record]) -> list[KeywordRow]:
    several = len({record.names.root for record in records.values()}) > 1
    rows = []
    for word in sorted(words, key=lambda word: (word.lstrip("_").lower(), word)):
        for kind in _KINDS:
            places = sorted(
                (place for place in words[word] if place.kind == kind), key=lambda one: records[one.file].key
            )
            links = [_link(page, place, records[place.file], several) for place in places]
            if links:
                rows.append(KeywordRow(word, kind, links))
    return rows


def _link(page: str, place: Place, record: Record, several: bool) -> Link:
    text = f"{record.names.root}/{record.names.path}" if several else record.names.path
    return Link(text, paths.href(page, record.names.page, place.anchor), place.note)


def _title(page: str) -> str:
    return page.removeprefix("keywords/").removesuffix(".html")
