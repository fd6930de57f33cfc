"""A reader of flatbuffers that trusts nothing: each offset is checked before it is followed.

A table is a position; in front of it stands the way to its list of fields, each at a slot whose number is the field's
place in the schema. Fields that have their default value are not stored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_FORMS = {letter: struct.Struct("<" + letter) for letter in "BbHiIqQ"}
_UOFFSET, _SOFFSET, _SLOT = _FORMS["I"], _FORMS["i"], _FORMS["H"]


class FlatbufferError(ValueError):
    """Bytes that make no sense where a flatbuffer should be: the end of a sentence. Readers say which file it is."""


class Buffer:
    """The bytes of one flatbuffer, and how much of them may still be read."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        # Offsets may lead to the same place again and again: an honest file has four bytes for each entry of a list.
        self._entries_left = len(self._data) // 4

    def root(self, identifier: bytes, start: int = 0) -> Table:
        """The outermost table. A size may stand in front of the buffer: then it starts behind that."""
        if bytes(self._data[start + 4 : start + 8]) != identifier:
            raise FlatbufferError(f"no {identifier.decode()} stands at its beginning")
        return Table(self, start + self.number(_UOFFSET, start))

    def number(self, form: struct.Struct, position: int) -> int:
        if position < 0 or position + form.size > len(self._data):
            raise FlatbufferError(f"an offset leads to byte {position} of {len(self._data)}")
        value: int = form.unpack_from(self._data, position)[0]
        return value

    def follow(self, position: int) -> int:
        return position + self.number(_UOFFSET, position)

    def text(self, position: int) -> str:
        size = self.number(_UOFFSET, position)
        self._check(position + 4, size)
        return bytes(self._data[position + 4 : position + 4 + size]).decode(errors="replace")

    def entries(self, position: int, size: int) -> range:
        """Where each entry of the list at this position stands, if an entry has this many bytes."""
        count = self.number(_UOFFSET, position)
        self._check(position + 4, count * size)
        self._entries_left -= count
        if self._entries_left < 0:
            raise FlatbufferError("its lists have more entries than its bytes can hold")
        return range(position + 4, position + 4 + count * size, size)

    def _check(self, position: int, size: int) -> None:
        if position + size > len(self._data):
            raise FlatbufferError(f"a list of {size} bytes at byte {position} ends behind its end")


class Table:
    """One table: its fields by their slots."""

    def __init__(self, buffer: Buffer, position: int) -> None:
        self._buffer = buffer
        self._position = position
        self._fields = position - buffer.number(_SOFFSET, position)
        self._size = buffer.number(_SLOT, self._fields)

    def integer(self, slot: int, form: str, default: int = 0) -> int:
        """In the letters of the module struct: B, b, i, I, q, Q."""
        where = self._where(slot)
        return default if where is None else self._buffer.number(_FORMS[form], where)

    def text(self, slot: int) -> str | None:
        where = self._where(slot)
        return None if where is None else self._buffer.text(self._buffer.follow(where))

    def table(self, slot: int) -> Table | None:
        where = self._where(slot)
        return None if where is None else Table(self._buffer, self._buffer.follow(where))

    def tables(self, slot: int) -> Iterator[Table]:
        where = self._where(slot)
        if where is not None:
            for entry in self._buffer.entries(self._buffer.follow(where), 4):
                yield Table(self._buffer, self._buffer.follow(entry))

    def integers(self, slot: int, form: str) -> list[int]:
        where = self._where(slot)
        if where is None:
            return []
        number = _FORMS[form]
        entries = self._buffer.entries(self._buffer.follow(where), number.size)
        return [self._buffer.number(number, entry) for entry in entries]

    def _where(self, slot: int) -> int | None:
        entry_offset = 4 + 2 * slot
        if entry_offset + 2 > self._size:
            return None
        offset = self._buffer.number(_SLOT, self._fields + entry_offset)
        return self._position + offset if offset else None
