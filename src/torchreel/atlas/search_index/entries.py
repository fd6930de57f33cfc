"""Entries: the words under which one file can be found, each with what it is to the file and its line."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import msgspec

from torchreel.atlas.model import Parsed, Symbol
from torchreel.atlas.read.languages import PYTHON
from torchreel.atlas.search_index.classes import (
    DECLARED,
    DOC,
    FIELD,
    FIELD_PART,
    FILE_DOC,
    FOLDER,
    FOLDER_PART,
    HEADING,
    IMPORTED,
    MEMBER,
    MEMBER_PART,
    SPECIAL,
    STEM,
    STEM_PART,
    TOP,
    TOP_PART,
    USED,
    VARIABLE,
    WordClass,
)
from torchreel.atlas.symbols import first_sentence
from torchreel.atlas.words import LANGUAGE_WORDS, STOP_WORDS, WORD, parts, plain

_SHORTEST_PART = 2  # letters; less than that is found as a whole name only
_LONGEST = 100  # letters of a word: a longer one is data
_REACHABLE = {"class", "struct", "union", "enum", "function", "macro"}
_PART_OF = {TOP: TOP_PART, MEMBER: MEMBER_PART}

_Found = dict[str, tuple[int, WordClass, int]]


class Entries(msgspec.Struct, array_like=True):
    """The words of a file. They hold letters, digits and underscores only, whatever the file does."""

    marks: dict[str, str] = {}
    """By word, as the file spells it: the letter of its class and the line, `A120`; no line for the first. A word that
    is also in the path has two: `A120N`."""


def entries(path: str, parsed: Parsed) -> Entries:
    """The words under which a file can be found; `path` begins with the name of its root."""
    content: _Found = {}
    for word, of_class, line in _content(parsed):
        if plain(word) and len(word) <= _LONGEST:
            _keep_best(content, word, of_class, line)
    places: _Found = {}
    for word, of_class in _places(path):
        _keep_best(places, word, of_class, 1)
    marks = {word: _mark(of_class, line) for word, (_, of_class, line) in content.items()}
    for word, (_, of_class, line) in places.items():
        marks[word] = marks.get(word, "") + _mark(of_class, line)
    return Entries(marks)


def _keep_best(found: _Found, word: str, of_class: WordClass, line: int) -> None:
    known = found.get(word)
    if known is None or (of_class.weight, -line) > (known[0], -known[2]):
        found[word] = (of_class.weight, of_class, line)


def _mark(of_class: WordClass, line: int) -> str:
    return f"{of_class.letter}{line}" if line > 1 else of_class.letter


def _content(parsed: Parsed) -> Iterator[tuple[str, WordClass, int]]:
    for symbol in parsed.symbols:
        yield from _of_symbol(symbol, parsed.language)
    for registration in parsed.registrations:
        yield from _of_name(registration.name.rpartition("::")[2], VARIABLE, registration.line)
    for word in _spoken(parsed.doc):
        yield word, FILE_DOC, 1
    for use, line in _first_lines(parsed):
        name = parsed.uses[use].name
        if len(name) > 1 and name not in LANGUAGE_WORDS:
            of_class = IMPORTED if parsed.uses[use].path else USED
            for word in WORD.findall(name):
                yield word, of_class, line


def _of_symbol(symbol: Symbol, language: str) -> Iterator[tuple[str, WordClass, int]]:
    if symbol.kind == "heading":
        for word in WORD.findall(symbol.name):
            if plain(word) and word.lower() not in STOP_WORDS:
                yield word, HEADING, symbol.line
        return
    yield from _of_name(symbol.name, _class_of(symbol, language), symbol.line)
    for word in _spoken(symbol.doc):
        yield word, DOC, symbol.line


def _class_of(symbol: Symbol, language: str) -> WordClass:
    if symbol.kind == "namespace" or (symbol.name.startswith("__") and symbol.name.endswith("__")):
        return SPECIAL
    if symbol.declaration:
        return DECLARED
    if symbol.kind in _REACHABLE:
        # A scope of Python hides: what is within a function or a class is less likely meant. C++ has namespaces.
        return MEMBER if symbol.scope and language == PYTHON else TOP
    if symbol.kind == "method":
        return MEMBER
    return FIELD if symbol.scope else VARIABLE


def _of_name(name: str, of_class: WordClass, line: int) -> Iterator[tuple[str, WordClass, int]]:
    part_class = _PART_OF.get(of_class, FIELD_PART)
    for word, is_part in _words_of(name):
        yield word, part_class if is_part else of_class, line


@functools.lru_cache(1 << 14)
def _words_of(name: str) -> tuple[tuple[str, bool], ...]:
    """The words of a name, each with whether it is a part of one: many files know the same names."""
    found: list[tuple[str, bool]] = []
    for word in WORD.findall(name):
        if plain(word):
            found.append((word, False))
            # The first part needs no entry: whoever looks for it finds the name that begins with it.
            small = [part.lower() for part in parts(word)[1:] if len(part) >= _SHORTEST_PART]
            found += [(part, True) for part in small if part not in STOP_WORDS]
    return tuple(found)


def _spoken(doc: str) -> Iterable[str]:
    if not doc:
        return ()
    words = (word.lower() for word in WORD.findall(first_sentence(doc)))
    return (word for word in words if len(plain(word)) >= _SHORTEST_PART and word not in STOP_WORDS)


def _first_lines(parsed: Parsed) -> Iterable[tuple[int, int]]:
    """Each use with the line where it stands first."""
    first: dict[int, int] = {}
    for slot, line in zip(parsed.slots, parsed.lines, strict=True):
        first.setdefault(slot, line)
    return first.items()


def _places(path: str) -> Iterator[tuple[str, WordClass]]:
    *folders, name = path.split("/")
    stem, _, ending = name.partition(".")
    if stem == "__init__" and folders:  # the file of a package is looked for by the package's name
        stem = folders[-1]
    for words, whole, part in [(folder, FOLDER, FOLDER_PART) for folder in folders] + [(stem, STEM, STEM_PART)]:
        for word in WORD.findall(words):
            if plain(word):
                yield plain(word), whole
                for piece in parts(word)[1:]:
                    yield piece.lower(), part
    for word in WORD.findall(ending):
        yield word.lower(), FOLDER_PART
