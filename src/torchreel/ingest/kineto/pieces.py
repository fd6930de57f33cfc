"""The bytes of a JSON object with one long list -> what stands beside the list, and its items, thousands at a time.

No byte of an item is looked at here, except to find where one ends: a `Grammar` decodes them.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from torchreel.ingest.kineto.grammar import Grammar, Losses, is_blank, quoted, valid

# An event, or what stands before or after all of them, is smaller than this; else there is no end to wait for.
_MOST = 64 << 20
_SPACE = b" \t\r\n"
_END = re.compile(rb"[}\]]\s*\]\s*(?=[,}])")
_END_OF_LIST = re.compile(rb"\]\s*$")
# Places where the events may end that are tried before a chunk counts as damaged.
_TRIES = 16
# An item may be so large without any doubt.
_SMALL = 1 << 20
# The same at the end of the file, where the last such places are tried.
_ENDS = 64
# Brackets that are looked at for the beginning of the last item.
_CANDIDATES = 10_000


Item = TypeVar("Item")


# Why bytes are lost that are valid: nothing says which of two lists is meant.
SECOND_LIST = "a second list"


class Pieces(Generic[Item]):
    """Reads one file. `top` has all keys beside the list, once its items have been read."""

    def __init__(self, blocks: Iterator[bytes], grammar: Grammar[Item]) -> None:
        self._grammar = grammar
        self._list = re.compile(rb'"%b"\s*:\s*\[' % grammar.key)
        self.top: dict[str, Any] = {}
        self.losses = Losses()
        self.found = False  # whether there is such a list
        self.cut_off = False  # whether the file ends before the list does
        self._blocks = blocks
        self._rest = b""
        self._ended = False
        self._bare = False

    def __iter__(self) -> Iterator[list[Item]]:
        self._read_head()
        while self.found and not self._ended:
            self._more()
            part = self._whole_events()
            if not is_blank(part):
                yield self._decoded(part)
        if self.found:
            self._read_tail()

    def _more(self) -> bool:
        block = next(self._blocks, None)
        if block is None:
            self._ended = True
            return False
        self._rest += block
        return True

    def _read_head(self) -> None:
        """Find where the events begin; a file may also be a list of events and nothing else."""
        searched = 0
        while self._more():
            if self._rest[:3] == b"\xef\xbb\xbf":
                self._rest = self._rest[3:]
            if self._rest.lstrip(_SPACE).startswith(b"["):
                self._bare = self.found = True
                self._rest = self._rest.lstrip(_SPACE)[1:]
                return
            matches = list(itertools.islice(self._list.finditer(self._rest, searched), _TRIES))
            for match in matches:
                top = _object(self._rest[: match.start()] + b'"":0}')
                if top is not None:
                    self._begin(match.end(), top)
                    return
            if matches:
                self._begin(matches[0].end(), self._mended_head(self._rest[: matches[0].start()]))
                return
            searched = max(0, len(self._rest) - 100)
            if len(self._rest) > _MOST:
                return

    def _begin(self, start: int, top: dict[str, Any]) -> None:
        self.found = True
        self.top = top
        self._rest = self._rest[start:]

    def _mended_head(self, head: bytes) -> dict[str, Any]:
        for text in (valid(head), quoted(valid(head))):
            top = _object(text + b'"":0}')
            if top is not None:
                self.losses.mended += 1
                return top
        self.losses.add(len(head), "before the list")
        return {}

    def _whole_events(self) -> bytes:
        """Take as many whole events from what was read as there are; at the end of the file, all."""
        if self._ended:
            end = self._end_of_events()
            if end is None:
                self.cut_off = True
                part, self._rest = self._rest, b""
            else:
                part, self._rest = self._rest[: end[0]], self._rest[end[1] :]
            return part
        cut = self._last_begin(self._rest)
        if cut is None:
            if len(self._rest) > _MOST:
                self.losses.add(len(self._rest), "larger than any event")
                self._rest = b""
            return b""
        part, self._rest = self._rest[:cut], self._rest[cut:]
        return part

    def _last_begin(self, text: bytes, before: int | None = None) -> int | None:
        """Where the last item begins, which may not be whole: after a comma, and as items do."""
        at = len(text) if before is None else before
        for _ in range(_CANDIDATES):
            at = text.rfind(b"{", 0, at)
            if at <= 0:
                break
            left = text[max(0, at - 100) : at].rstrip(_SPACE)
            if left.endswith(b",") and self._grammar.begin.match(text, at) is not None:
                return at
        return None

    def _end_of_events(self) -> tuple[int, int] | None:
        """Where the list ends and where its bracket does: there, what follows must be the rest of the object."""
        if self._bare:
            match = _END_OF_LIST.search(self._rest)
            return (match.start(), match.end()) if match else None
        if self._rest.lstrip(_SPACE).startswith(b"]"):
            start = self._rest.index(b"]")
            return start, start + 1
        for match in deque(_END.finditer(self._rest), maxlen=_ENDS):
            if _object(b'{"":0' + self._rest[match.end() :]) is not None:
                return match.start() + 1, match.end()
        return None

    def _decoded(self, part: bytes) -> list[Item]:
        events = self._grammar.decode(part)
        if events is not None:
            return events
        if not self._ended:
            events = self._until_the_end(part) if not self._bare else None
            events = events if events is not None else self._until_another_begin(part)
            if events is not None:
                return events
        return self._grammar.mended(part, self.losses, self.cut_off)

    def _until_the_end(self, part: bytes) -> list[Item] | None:
        """The items, if the list ends here, long before the file does."""
        for _, match in zip(range(_TRIES), _END.finditer(part), strict=False):
            events = self._grammar.decode(part[: match.start() + 1])
            if events is not None:
                self._rest = part[match.end() :] + self._rest
                self._ended = True
                return events
        return None

    def _until_another_begin(self, part: bytes) -> list[Item] | None:
        """The items, if what seemed to begin the last one is within it, as an object in a list may be."""
        cut: int | None = len(part)
        for _ in range(_ENDS):
            cut = self._last_begin(part, cut)
            if cut is None:
                break
            events = self._grammar.decode(part[:cut])
            if events is not None:
                self._rest = part[cut:] + self._rest
                return events
        if len(part) < _SMALL:  # all of it is within one item
            self._rest = part + self._rest
            return []
        return None

    def _read_tail(self) -> None:
        while len(self._rest) <= _MOST:
            block = next(self._blocks, None)
            if block is None:
                break
            self._rest += block
        skipped = sum(map(len, self._blocks))
        if self._bare or self.cut_off:
            return
        tail = _object(b'{"":0' + self._rest)
        if tail is None:
            self.losses.add(len(self._rest) + skipped, "after the list")
        else:
            if tail.pop(self._grammar.key.decode(), None):
                self.losses.add(len(self._rest), SECOND_LIST)
            self.top |= tail


def _object(text: bytes) -> dict[str, Any] | None:
    """The object of a JSON text without the key that completes it; None for what is none."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if type(value) is not dict:
        return None
    value.pop("", None)
    return value
