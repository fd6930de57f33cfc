"""Python: the text of a file -> its symbols, imports, names and what each of them means in the file.

By `ast`, which knows all of the language that this Python knows. What it refuses is read by tree-sitter, which reads on
behind an error. Nothing of the text is imported or executed.

    text ──► PythonText ──► PythonTokens ───────────────────────────────────┐
                 ├──► ast ──► Walk ──────────────┬──► Found ──► Resolver ───┴──► Parsed
                 └──► repair ──► BrokenWalk ─────┘                └──► calls_of
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from torchreel.atlas.model import DEFINITION, KEYWORD, Parsed, Use
from torchreel.atlas.read.languages import PYTHON
from torchreel.atlas.read.python import repair
from torchreel.atlas.read.python.calls import calls_of
from torchreel.atlas.read.python.comments import comment_about, prose_of
from torchreel.atlas.read.python.found import Found
from torchreel.atlas.read.python.scopes import Resolver, slots_of
from torchreel.atlas.read.python.text import PythonText
from torchreel.atlas.read.python.tokens import PLAIN, WORD, PythonTokens
from torchreel.atlas.read.python.walk import Walk

_IN_A_WORD = re.compile(rf"(?<=[{WORD}])(?=[{WORD}])")


def parse(text: str) -> Parsed:
    """What a Python source says by itself. Never fails: what is not understood is in `errors`."""
    source = PythonText(text)
    tokens = PythonTokens(source)
    return _parsed(source, tokens, _found(source))


def _found(source: PythonText) -> Found:
    try:
        tree = repair.parse(source.text)
    except repair.REFUSALS as error:
        found = _found_in_refused(source, error)
    else:
        found = Walk(source).run(tree)
    found.settle()
    return found


def _found_in_refused(source: PythonText, error: BaseException) -> Found:
    """What `ast` accepts it reads; the rest is for tree-sitter."""
    from torchreel.atlas.read.python.broken import BrokenWalk

    repaired = repair.repair(source, error)
    walk = Walk(source, {block.placeholder for block in repaired.blocks})
    reader = BrokenWalk(source, walk.found)
    if repaired.tree is None:
        reader.read_all()
    else:
        walk.run(repaired.tree)
        for block in repaired.blocks:
            if block.placeholder in walk.scope_at:
                reader.read(walk.scope_at[block.placeholder], block.start, block.end)
    walk.found.errors += repaired.errors
    return walk.found


def _parsed(source: PythonText, tokens: PythonTokens, found: Found) -> Parsed:
    symbols = found.symbols
    starts = tokens.mark(found.name_ends, DEFINITION)
    for index in np.flatnonzero(starts < 0).tolist():  # within a string: an f-string, or one that nobody closed
        starts[index] = found.name_ends[index] - len(symbols[index].name.encode())
    tokens.mark(found.soft_keywords, KEYWORD)
    lines, columns = source.lines_and_columns(starts)
    for symbol, line, column in zip(symbols, lines, columns, strict=True):
        symbol.line, symbol.column = line, column
    order = starts.argsort(kind="stable")
    resolver = Resolver(found.classes, order.argsort().tolist())
    _mark_uses(source, tokens, found, resolver)
    places, slots = tokens.uses()
    lines, columns = source.lines_and_columns(places)
    registrations, looks = calls_of(found, resolver)
    return Parsed(
        PYTHON,
        found.doc or comment_about(source, tokens.comments, found.first_statement),
        [symbols[index] for index in order.tolist()],
        sorted(found.imports, key=lambda row: row.line),
        resolver.uses,
        lines,
        columns,
        slots,
        registrations,
        looks,
        sorted({*source.unreadable, *found.errors}),
        prose_of(source, tokens.comments, found.docs),
        tokens.listed(),
    )


def _mark_uses(source: PythonText, tokens: PythonTokens, found: Found, resolver: Resolver) -> None:
    """Say of each name in the text what it means."""
    ends: list[int] = []
    slots: list[int] = []
    in_strings: list[tuple[int, int, int]] = []
    for scope, found_slots in zip(found.scopes, slots_of(found.scopes, resolver), strict=True):
        if scope.in_string:
            in_strings += _in_string(source.view, scope.ends, found_slots, resolver.uses)
        else:
            ends += scope.ends
            slots += found_slots
    tokens.mark(ends, slots)
    tokens.mark_within_strings(in_strings)


def _in_string(
    view: str, ends: Sequence[int], slots: Sequence[int], uses: Sequence[Use]
) -> Iterator[tuple[int, int, int]]:
    """Start, end and slot of names in f-strings. There `ast` may err in the place: then a name is left out."""
    for end, slot in zip(ends, slots, strict=True):
        if slot == PLAIN:
            continue
        name = uses[slot].name
        if not name.isascii():
            name = name.encode().decode("latin-1")
        start = end - len(name)
        if view[start:end] == name and not _IN_A_WORD.match(view, start) and not _IN_A_WORD.match(view, end):
            yield start, end, slot
