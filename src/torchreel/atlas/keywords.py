"""Keywords: at most 100 words by which a file can be found, the best first, the same in every run.

First what the file defines, then names that it uses and few others do, then phrases of its prose that are names written
apart (`thread local debug info` for ThreadLocalDebugInfo). All of them are names of the source: no word of a page of
ours and no word that only begins a sentence can be among them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torchreel.atlas.model import Keyword, Parsed, Symbol
from torchreel.atlas.read.languages import CPP, PYTHON
from torchreel.atlas.words import LANGUAGE_WORDS, STOP_WORDS, WORD, parts

MOST = 100
_MOST_SPOKEN = 12  # of them, where the prose has so many
_SHORTEST = 3  # letters of a name that is used
_TYPES = {"class", "struct", "union", "enum", "function", "macro"}
_NAMES = {"variable", "using", "alias", "key"}
_BY_THE_WAY = {"attribute", "parameter"}
_SPECIAL = re.compile(r"__\w+__|~.*|operator\b.*")
_SENTENCE_MARK = re.compile(r"[^\w\s'-]+|\n\s*\n")


@dataclass(slots=True)
class _Name:
    """A name of a file: where it stands first, and how often."""

    line: int
    count: int


def rarity(document_count: int, documents: int) -> int:
    """How rare a name is: the number of times that one has to double its documents to have all of them, and one.

    Both numbers count as the next power of two. So a file that comes, goes or changes almost never makes a name rarer
    or more common, and the keywords of other files stay as they are.
    """
    return (_next_power(documents) // _next_power(document_count)).bit_length()


def names_counted(parsed: Parsed) -> dict[str, int]:
    """The names of a file that count when documents are counted, with how often they stand in it."""
    return {name: found.count for name, found in _names(parsed).items() if _is_telling(name)}


def keywords(parsed: Parsed, document_counts: Mapping[str, int], documents: int) -> list[Keyword]:
    """The keywords of a file, the best first. `document_counts` says in how many of all documents each name is."""
    names = _names(parsed)

    def worth(name: str) -> int:
        return names[name].count.bit_length() * rarity(document_counts.get(name, 1), documents)

    defined = _defined(parsed, names)
    used = sorted(
        (name for name in names if name not in defined and _is_telling(name)), key=lambda name: (-worth(name), name)
    )
    room = MOST - min(len(defined), MOST)
    spoken = _spoken(parsed.prose, [*defined, *used], names, worth)[: min(_MOST_SPOKEN, room)]
    attributes = {symbol.name for symbol in parsed.symbols}
    return [
        *(Keyword(name, "defines", line, names[name].count) for name, line in list(defined.items())[:MOST]),
        *(
            Keyword(name, "defines" if name in attributes else "uses", names[name].line, names[name].count)
            for name in used[: room - len(spoken)]
        ),
        *spoken,
    ]


def _next_power(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def _names(parsed: Parsed) -> dict[str, _Name]:
    """All names that a file defines or uses. A heading of plain English is none."""
    names: dict[str, _Name] = {}
    for symbol in parsed.symbols:
        if symbol.kind != "heading" or _is_phrase(symbol.name):
            _count(names, symbol.name, symbol.line)
    is_code = parsed.language == PYTHON or parsed.language in CPP
    first = dict(zip(reversed(parsed.slots), reversed(parsed.lines), strict=True))
    for slot, count in Counter(parsed.slots).items():
        name = parsed.uses[slot].name
        if is_code or not _is_plain(name):
            _count(names, name, first[slot], count)
    return names


def _is_plain(word: str) -> bool:
    """Whether a word of a text may be plain English: capitals only at its beginning, or nothing else."""
    return word.isalpha() and (word.istitle() or word.isupper() or word.islower())


def _count(names: dict[str, _Name], name: str, line: int, count: int = 1) -> None:
    found = names.get(name)
    if found is None:
        names[name] = _Name(line, count)
    else:
        found.count += count
        found.line = min(found.line, line)


def _is_telling(name: str) -> bool:
    """Whether a name that is used says something: it has capitals, or underscores within, and is of no language."""
    return (
        len(name) >= _SHORTEST
        and name.isidentifier()
        and (not name.islower() or "_" in name.strip("_"))
        and name not in LANGUAGE_WORDS
        and name.strip("_").lower() not in STOP_WORDS
        and not (name.startswith("__") and name.endswith("__"))
    )


def _defined(parsed: Parsed, names: Mapping[str, _Name]) -> dict[str, int]:
    """What a file defines with the line of the first definition, the most important first."""
    best: dict[str, tuple[int, int]] = {}
    for symbol in parsed.symbols:
        rank = _rank(symbol, parsed.language)
        if rank is not None:
            best[symbol.name] = min(best.get(symbol.name, (rank, symbol.line)), (rank, symbol.line))

    def importance(name: str) -> tuple[int, bool, int, int, str]:
        rank, line = best[name]
        return rank, name.startswith("_"), -names[name].count, line, name

    ordered = sorted(best, key=importance)
    return {name: best[name][1] for name in ordered}


def _rank(symbol: Symbol, language: str) -> int | None:
    """How important a definition is, 0 the most; None for what is no more than a use, or plain English."""
    if symbol.kind in _BY_THE_WAY:
        return None
    if symbol.kind == "heading":
        return 0 if _is_phrase(symbol.name) else None
    if symbol.kind == "namespace" or _SPECIAL.fullmatch(symbol.name):
        return 4
    if symbol.kind in _TYPES:
        return 1 if symbol.declaration or (symbol.scope and language == PYTHON) else 0
    if symbol.kind == "method":
        return 1
    return 2 if symbol.kind in _NAMES else 3


def _is_phrase(heading: str) -> bool:
    words = [word for word in WORD.findall(heading) if word.lower() not in STOP_WORDS]
    return len(words) > 1 or any(_is_telling(word) and not _is_plain(word) for word in words)


def _spoken(
    prose: str, candidates: Iterable[str], names: Mapping[str, _Name], worth: Callable[[str], int]
) -> list[Keyword]:
    """Names that the prose writes apart, with the line where the name itself stands first."""
    clauses = [" ".join(WORD.findall(clause)) for clause in _SENTENCE_MARK.split(prose.lower())]
    text = f" {' . '.join(clauses)} "
    words = set(text.split())
    found: dict[str, tuple[int, str]] = {}
    for name in candidates:
        pieces = [piece.lower() for piece in parts(name)]
        if not name.isidentifier() or not _can_be_spoken(pieces) or not words.issuperset(pieces):
            continue
        phrase = " ".join(pieces)
        count = text.count(f" {phrase} ")
        if count:
            found.setdefault(phrase, (count, name))
    ordered = sorted(found, key=lambda phrase: (-found[phrase][0].bit_length() * worth(found[phrase][1]), phrase))
    return [Keyword(phrase, "speaks", names[found[phrase][1]].line, found[phrase][0]) for phrase in ordered]


def _can_be_spoken(pieces: list[str]) -> bool:
    return len(pieces) > 1 and all(len(piece) > 1 and piece not in STOP_WORDS for piece in pieces)
