"""Queries: the files that have the words, the best first. The page's script, search.js, finds the same.

A word finds names that are equal to it, and names that begin with it. For each file it is worth what its best match is
to the file, and beside that what it is to the path. Files with all words come first; among them the sum decides, then
what the file itself is worth, then the path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchreel.atlas.search_index.classes import CLASSES, WordClass
from torchreel.atlas.search_index.index import FileRow, read_files
from torchreel.atlas.search_index.shards import FOLDER, MARK, POSTING, damaged, number_of, read_rows, shard_of
from torchreel.atlas.words import WORD, parts, plain
from torchreel.errors import OptionError

_BY_LETTER: Mapping[str, WordClass] = {one.letter: one for one in CLASSES}
_EACH_WORD = 1000  # more than any sum, so that a file with more of the words comes first
_SAME, _SAME_LETTERS = 100, 96  # percent: the word as it was typed, and in another case or without underscores
_IN_PATH = 40  # the words follow each other in the path, as in nn/functional.py
_MOST_WORDS = 16


@dataclass(slots=True)
class Match:
    """What a word, or several, found in a file."""

    content: int = 0
    path: int = 0
    line: int = 1
    name: str = ""
    """The whole name that was found; empty for a part of one, or a word of a sentence."""
    kind: str = "path"


@dataclass(frozen=True)
class Result:
    """A file that was found, and the line in it that is most likely meant."""

    path: str
    line: int
    score: int
    title: str
    kind: str
    href: str


def search(site: str | Path, words: str, limit: int = 10) -> list[dict[str, Any]]:
    """The files of an atlas that have the words, the best first: path, line, score and title of each.

    The title is the name that was found, or the file's own where the words stand in its path or in a sentence.
    """
    return [
        {"path": one.path, "line": one.line, "score": one.score, "title": one.title}
        for one in results(Path(site), words, limit)
    ]


def results(site: Path, words: str, limit: int) -> list[Result]:
    """What the page of results shows."""
    if limit < 1:
        raise OptionError(f"limit is {limit}: ask for at least one result.")
    files = read_files(site)
    try:
        return _ranked(files, _matches(site, words), words, limit)
    except (KeyError, IndexError) as error:  # a class or a file that the list does not have
        raise damaged(site / FOLDER) from error


def _ranked(files: list[FileRow], matches: list[dict[int, Match]], words: str, limit: int) -> list[Result]:
    found: dict[int, list[Match]] = {}
    for of_word in matches:
        for number, match in of_word.items():
            found.setdefault(number, []).append(match)
    row = _in_a_row(words)
    scored = [(_score(matched, len(matches), files[number], row), number) for number, matched in found.items()]
    scored.sort(key=lambda one: (-one[0], one[1]))
    return [_result(files[number], found[number], score) for score, number in scored[:limit]]


def _score(matched: list[Match], words: int, file: FileRow, row: str) -> int:
    worth = sum(one.content + one.path for one in matched) // words
    if words > 1 and all(one.path for one in matched) and row in _in_a_row(file.path):
        worth += _IN_PATH
    return _EACH_WORD * len(matched) + worth + file.rank


def _in_a_row(text: str) -> str:
    return f"/{'/'.join(WORD.findall(text.lower()))}/"


def _result(file: FileRow, matched: list[Match], score: int) -> Result:
    lines = {one.line for one in matched if one.content}
    if len(lines) > 1 and all(one.path for one in matched):
        # The words stand in different places, but all in the path: the file itself is meant.
        best = Match()
    else:
        best = max(matched, key=lambda one: one.content)
    return Result(file.path, best.line, score, best.name or file.title, best.kind, file.href)


def _matches(site: Path, words: str) -> list[dict[int, Match]]:
    """What each word finds. One that finds nothing is taken apart: `fakeTensors` is `fake` and `tensors`."""
    found: dict[str, dict[int, Match]] = {}
    for word in WORD.findall(words)[:_MOST_WORDS]:
        whole = _found(site, word)
        pieces = parts(word)
        if whole or len(pieces) < 2:
            found.setdefault(plain(word), whole)
        else:
            found.update((plain(piece), _found(site, piece)) for piece in pieces if plain(piece) not in found)
    found.pop("", None)
    return list(found.values())


def _found(site: Path, typed: str) -> dict[int, Match]:
    found: dict[int, Match] = {}
    word = plain(typed)
    if not word:
        return found
    for name, postings in read_rows(site, shard_of(word)).items():
        key = plain(name)
        if key == word:
            percent = _SAME if name == typed else _SAME_LETTERS
        elif len(word) > 1 and key.startswith(word):
            percent = 40 + 40 * len(word) // len(key)
        else:
            continue
        for number, marks in POSTING.findall(postings):
            match = found.setdefault(number_of(number), Match())
            for letter, line in MARK.findall(marks):
                _improve(match, _BY_LETTER[letter], percent, name, line)
    return found


def _improve(match: Match, of_class: WordClass, percent: int, name: str, line: str) -> None:
    worth = of_class.weight * percent // 100
    if of_class.kind == "path":
        match.path = max(match.path, worth)
    elif worth > match.content:
        match.content, match.kind = worth, of_class.kind
        match.line, match.name = int(line or 1), name if of_class.named else ""
