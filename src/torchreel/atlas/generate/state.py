"""What a next run needs to know of this one, to read and write only what changed: `build.msgpack` in the site.

It can be deleted: the next run then does everything anew. A file that is damaged, or of another version, counts as
deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from torchreel._version import __version__
from torchreel.atlas.model import Keyword, Registration
from torchreel.atlas.search_index.entries import Entries
from torchreel.atlas.site.output import write_bytes
from torchreel.atlas.symbols import FileNames
from torchreel.errors import AtlasError

FORMAT = 2
_FILE = "build.msgpack"
_Kind = TypeVar("_Kind")
_Bytes = bytes  # a record has a field of that name


class Rest(msgspec.Struct, array_like=True):
    """What is looked at only when the file is read again."""

    terms: list[str]
    keywords: list[Keyword]
    entries: Entries
    """For the search."""


class Record(msgspec.Struct, array_like=True):
    """A file, as a run left it."""

    names: FileNames
    sha256: str
    bytes: int
    lines: int
    sentence: str
    """The first of its documentation."""
    errors: int
    words: list[str]
    """Its best keywords, for the pages of folders."""
    targets: list[int]
    links: dict[int, int]
    registrations: list[Registration]
    used: _Bytes
    """A hash of each name that it uses or defines."""
    stamp: tuple[int, ...]
    """As `tree.Source` has it; empty, if the file may change without changing it."""
    rest: msgspec.Raw

    @property
    def id(self) -> int:
        return self.names.id

    @property
    def key(self) -> tuple[str, str]:
        return self.names.root, self.names.path

    def details(self) -> Rest:
        return decoded(self.rest, Rest)


def decoded(data: msgspec.Raw, kind: type[_Kind]) -> _Kind:
    """A part of the state that is decoded when it is wanted."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise AtlasError(f"{_FILE} of the site is damaged: make the site anew with --force.") from None


class KeywordIndex(msgspec.Struct, array_like=True):
    """The keyword index, but for what files define, which their records have."""

    places: dict[str, int] = {}
    """How many places the words of each letter have."""
    used: dict[str, msgspec.Raw] = {}
    """By the first two letters of words, where they are used or spoken of: `keyword_index.Used`."""


class State(msgspec.Struct):
    """All files, and what they were made with."""

    format: int
    version: str
    made_with: dict[str, str]
    """Options and the reel: with others everything is made anew."""
    split: list[str]
    """Letters of the keyword index that have a page for each second letter."""
    counts: dict[str, int]
    """In how many files each name is."""
    keywords: KeywordIndex
    files: list[Record]

    @classmethod
    def empty(cls, made_with: dict[str, str]) -> State:
        return cls(FORMAT, __version__, made_with, [], {}, KeywordIndex(), [])


def load(site: Path, made_with: dict[str, str]) -> State:
    """The state that a run with the same options left; an empty one if there is none."""
    try:
        state = msgspec.msgpack.decode((site / _FILE).read_bytes(), type=State)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return State.empty(made_with)
    same = state.format == FORMAT and state.version == __version__ and state.made_with == made_with
    return state if same else State.empty(made_with)


def forget(site: Path) -> None:
    """Before anything is changed: of a run that is ended before its time nothing is known, so the next does all."""
    (site / _FILE).unlink(missing_ok=True)


def save(site: Path, state: State) -> None:
    write_bytes(site, _FILE, msgspec.msgpack.encode(state))
