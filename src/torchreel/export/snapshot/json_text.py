"""A snapshot as JSON, entry by entry: a list of frames is turned into text once, however often it is written."""

from __future__ import annotations

from typing import Any, BinaryIO

import msgspec

from torchreel.export.texts import json_text

_PIECE = 1000  # entries that are written together


def write_json(snapshot: dict[str, Any], file: BinaryIO) -> None:
    """Write the dictionary of a snapshot."""
    rows = _RowWriter(file)
    file.write(b"{")
    for number, (key, value) in enumerate(snapshot.items()):
        file.write(b'%s"%s": ' % (b",\n" if number else b"", key.encode()))
        if key in ("segments", "external_annotations"):
            rows.write(value)
        elif key == "device_traces":
            file.write(b"[")
            for index, trace in enumerate(value):
                file.write(b",\n" if index else b"")
                rows.write(trace)
            file.write(b"]")
        else:
            file.write(json_text(value).encode())
    file.write(b"}\n")


class _RowWriter:
    """Writes lists of rows; frames are known by their identity, which is shared."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frames: dict[int, msgspec.Raw] = {}

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Write a list of rows."""
        self._file.write(b"[")
        for first in range(0, len(rows), _PIECE):
            piece = [self._row(row) for row in rows[first : first + _PIECE]]
            self._file.write(b",\n" if first else b"\n")
            self._file.write(msgspec.json.encode(piece)[1:-1])
        self._file.write(b"]")

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        row = dict(row)
        if "frames" in row:
            row["frames"] = self._encoded(row["frames"])
        if "blocks" in row:
            row["blocks"] = [self._row(block) for block in row["blocks"]]
        return row

    def _encoded(self, frames: list[dict[str, Any]]) -> msgspec.Raw:
        known = self._frames.get(id(frames))
        if known is None:
            known = self._frames[id(frames)] = msgspec.Raw(msgspec.json.encode(frames))
        return known
