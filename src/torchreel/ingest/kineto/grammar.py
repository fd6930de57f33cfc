"""Items of a list in JSON: how one begins and is decoded, and what can be saved of those that are no valid JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)
# So many damaged items are looked at closely; of more, the bytes are counted only.
_CLOSELY = 100_000
# One damaged item may be so long.
_LONGEST = 16 << 20

Item = TypeVar("Item")


_BEFORE = re.compile(rb"[ \t\r\n,]*")
_BETWEEN = b" \t\r\n,"


def _list(text: bytes) -> bytes:
    """Items with commas between them as a list. A chunk has millions of bytes: they are copied once."""
    begin, end = _BEFORE.match(text).end(), len(text)  # type: ignore[union-attr]
    while end > begin and text[end - 1] in _BETWEEN:
        end -= 1
    return b"".join((b"[", memoryview(text)[begin:end], b"]"))


def is_blank(text: bytes) -> bool:
    """Whether there is no item in a text."""
    return _BEFORE.fullmatch(text) is not None


class Losses:
    """What could not be read, and why."""

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0
        self.mended = 0
        self.reasons: Counter[str] = Counter()

    def add(self, size: int, reason: str) -> None:
        self.events += 1
        self.bytes += size
        self.reasons[reason] += 1


class Grammar(Generic[Item]):
    """A list under a key, of objects of one kind."""

    def __init__(
        self, key: bytes, begin: bytes, item: type[Item], coerced: Callable[[Any, bytes], Item] | None = None
    ) -> None:
        """`begin` is the pattern of how an item begins.

        `coerced` makes an item of an object whose values have other types, or raises ValueError.
        """
        self.key = key
        self.begin = re.compile(begin)
        self._between = re.compile(rb",\s*(?=%b)" % begin)
        self._coerced = coerced
        self._items: msgspec.json.Decoder[list[Item]] = msgspec.json.Decoder(list[item])  # type: ignore[valid-type]
        self._item: msgspec.json.Decoder[Item] = msgspec.json.Decoder(item)

    def decode(self, text: bytes) -> list[Item] | None:
        """The items of a text, with commas between them; None if there is any fault in it."""
        try:
            return self._items.decode(_list(text))
        except _FAULTS:
            return None

    def mended(self, text: bytes, losses: Losses, cut_off: bool) -> list[Item]:
        """The items of a damaged text: each that is whole, or can be made so."""
        pieces = self._between.split(text.strip(b" \t\r\n,"))
        items: list[Item] = []
        spans = [(0, len(pieces))]
        while spans:
            first, last = spans.pop()
            found = self.decode(b",".join(pieces[first:last]))
            if found is not None:
                items += found
            elif last - first > 1:
                middle = (first + last) // 2
                spans += [(middle, last), (first, middle)]
            else:
                item = self._mended(pieces[first], losses)
                if item is not None:
                    items.append(item)
                else:
                    losses.add(len(pieces[first]), "cut off" if cut_off and last == len(pieces) else "damaged")
        return items

    def _mended(self, piece: bytes, losses: Losses) -> Item | None:
        if losses.events + losses.mended >= _CLOSELY or len(piece) > _LONGEST:
            return None
        for text in (piece, valid(piece), quoted(valid(piece))):
            item = self._one(text)
            if item is not None:
                losses.mended += 1
                return item
        return None

    def _one(self, text: bytes) -> Item | None:
        try:
            return self._item.decode(text)
        except _FAULTS:
            pass
        try:
            return None if self._coerced is None else self._coerced(msgspec.json.decode(text), text)
        except _FAULTS:
            return None


# Whole microseconds and the rest, each with its sign, as Kineto writes -5 ns: 0.-05.
_TWO_SIGNS = re.compile(rb"(:\s*)-?(\d{1,20})\.-(\d{1,3})(?=\s*[,}\]])")
_REPAIRS = (
    (re.compile(rb"(:\s*|[\[,]\s*)-?(?:NaN|nan|Infinity|inf)(?=\s*[,}\]])"), rb"\1null"),
    # A backslash that begins no escape.
    (re.compile(rb'(?<!\\)((?:\\\\)*)\\(?!["\\/bfnrtu]|$)'), rb"\1\\\\"),
    (re.compile(rb"\\u(?![0-9a-fA-F]{4})"), rb"\\\\u"),
    # Half of a character outside of the basic plane.
    (re.compile(rb"(?i)\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])"), rb"\\ufffd"),
    (re.compile(rb"(?i)(?<!\\ud[89ab]..)\\ud[c-f][0-9a-f]{2}"), rb"\\ufffd"),
)
_CONTROL = re.compile(rb"[\x00-\x1f]")


def valid(piece: bytes) -> bytes:
    """The text without what JSON does not allow, but quotes."""
    text = piece.decode("utf-8", "surrogateescape")
    if not text.isprintable() and any("\udc80" <= each <= "\udcff" for each in text):
        text = re.sub("[\udc80-\udcff]", lambda byte: f"\\\\x{ord(byte[0]) - 0xDC00:02x}", text)
    result = text.encode()
    result = _TWO_SIGNS.sub(lambda found: b"%b-%b.%03d" % (found[1], found[2], int(found[3])), result)
    for pattern, replacement in _REPAIRS:
        result = pattern.sub(replacement, result)
    return _escaped_controls(result)


def _escaped_controls(text: bytes) -> bytes:
    """Control characters within strings as escapes; between values they stay, as they may be line ends."""
    parts = re.split(rb'((?<!\\)(?:\\\\)*")', text)
    inside = False
    for index, part in enumerate(parts):
        if part.endswith(b'"') and index % 2:
            inside = not inside
        elif inside:
            parts[index] = _CONTROL.sub(lambda byte: b"\\u%04x" % byte[0][0], part)
    return b"".join(parts)


_CLOSES = re.compile(rb'\s*(?:[:}\]]|,\s*["{\[]|$)')


def quoted(piece: bytes) -> bytes:
    """The text with those quotes escaped that can neither open nor close a string."""
    result = bytearray()
    inside = False
    position = 0
    for match in re.finditer(rb'\\.|"', piece, re.DOTALL):
        result += piece[position : match.start()]
        position = match.end()
        if match[0] != b'"':
            result += match[0]
        elif not inside:
            inside = True
            result += b'"'
        elif _CLOSES.match(piece, position) is not None:
            inside = False
            result += b'"'
        else:
            result += b'\\"'
    return bytes(result + piece[position:])
