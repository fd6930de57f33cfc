"""Shards: the words of all files by their first two letters, each shard a script that holds one string.

    torchreelAtlas.shard("th","0thread aA120cM7;6_local bC33N")

A row is a word and, for each file that has it, the number of the file in small letters (a is 0, ba is 26) and what the
word is to it: the letter of a class and a line. The word begins as the one before does: a digit in base 36 says for
how many letters, the rest follows. Words hold letters, digits and underscores, so nothing needs escaping but letters
beyond ASCII, and no word is ever a key of an object in JavaScript.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchreel.atlas.words import plain
from torchreel.errors import AtlasError

FOLDER = "search"
POSTING = re.compile(r"([a-z]+)([A-Z0-9]+)")
MARK = re.compile(r"([A-Z])([0-9]*)")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ORDINARY = frozenset(_DIGITS + "_")

Rows = dict[str, str]
"""By word: its postings."""


def shard_of(word: str) -> str:
    """The name of the shard of a plain word: its first two letters, with `-` for all that file names may not carry."""
    return "".join(letter if letter in _ORDINARY else "-" for letter in word[:2])


def path_of(shard: str) -> str:
    """Where a shard lies in the site."""
    return f"{FOLDER}/{shard}.js"


def letters(number: int) -> str:
    """The number of a file as it stands in postings."""
    text = ""
    while True:
        number, digit = divmod(number, 26)
        text = chr(97 + digit) + text
        if not number:
            return text


def number_of(text: str) -> int:
    number = 0
    for letter in text:
        number = number * 26 + ord(letter) - 97
    return number


def rows_text(shard: str, rows: Mapping[str, str]) -> str:
    """The script of a shard. Rows are in the order of their words, plain spellings first."""
    written, before = [], ""
    for word in sorted(rows, key=lambda word: (plain(word), len(word), word)):
        shared = _shared(before, word)
        written.append(f"{_DIGITS[shared]}{word[shared:]} {rows[word]}")
        before = word
    return call("shard", shard, ";".join(written))


def _shared(before: str, word: str) -> int:
    """With how many letters both begin. Letters beyond ASCII are not shared: JavaScript may count one as two."""
    most = min(len(before), len(word), len(_DIGITS) - 1)
    for shared in range(most):
        if word[shared] != before[shared] or word[shared] > "\x7f":
            return shared
    return most


def read_rows(site: Path, shard: str) -> Rows:
    """The rows of a shard, in their order; none if there is no such shard."""
    try:
        _, text = called(site / path_of(shard), "shard")
        rows, before = {}, ""
        for row in text.split(";"):
            word, postings = row.split(" ")
            before = before[: int(word[:1], 36)] + word[1:]
            rows[before] = postings
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as error:
        raise damaged(site / path_of(shard)) from error
    return rows


def shards_in(site: Path) -> list[str]:
    """The names of all shards of a site."""
    names = (path.stem for path in (site / FOLDER).glob("*.js"))
    return sorted(name for name in names if len(name) <= 2)


def call(function: str, *values: object) -> str:
    """A script that hands values to the page, in ASCII."""
    return f"torchreelAtlas.{function}({','.join(json.dumps(value, separators=(',', ':')) for value in values)})\n"


def called(path: Path, function: str) -> list[Any]:
    """The values that such a script hands over. It is read, not run."""
    opening = f"torchreelAtlas.{function}("
    try:
        text = path.read_text("ascii")
        if not (text.startswith(opening) and text.endswith(")\n")):
            raise damaged(path)
        values: list[Any] = json.loads(f"[{text[len(opening) : -2]}]")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path) from error
    return values


def damaged(path: Path) -> AtlasError:
    return AtlasError(f"The search index of this atlas is damaged: {path} cannot be read. Make the atlas again.")
