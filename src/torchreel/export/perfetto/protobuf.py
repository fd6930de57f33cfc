"""Protocol Buffers' wire format: as much of it as a writer needs."""

from __future__ import annotations

import struct

from torchreel.export.texts import whole

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def varint(value: int) -> bytes:
    """A number of 64 bits, seven at a time, the lowest first; a negative one as its two's complement."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field that holds a varint."""
    return varint(field << 3 | _VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """A field that holds eight bytes."""
    return varint(field << 3 | _FIXED64) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """A field that holds a number with a fraction."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """A field that holds another message, given as its fields."""
    body = b"".join(parts)
    return varint(field << 3 | _BYTES) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A field that holds text."""
    return message(field, whole(value).encode())
