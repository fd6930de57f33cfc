"""Lists of frames -> the tables stacks and frames. The same list is read once, however often it is referred to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.ingest.rows import Rows, WrongValueError, as_list, coded, wrong

# What torch writes for a line that Python does not know: -1 without a sign.
_UNKNOWN_LINE = 2**64 - 1
_LAST_LINE = 2**31 - 1


class Stacks:
    """The distinct stacks and frames of a snapshot. Objects are known by their id: the snapshot must stay alive."""

    def __init__(self) -> None:
        self._lists: dict[int, int] = {}
        self._frame_objects: dict[int, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._frames: dict[tuple[str, int, str], int] = {}

    def column(self, rows: Rows, key: str = "frames") -> pa.Array:
        """The ids of the stacks under a key; null where a row has none."""
        return self.ids(rows.values(key), lambda index: f"{rows.place(index)}.{key}")

    def ids(self, lists: list[Any], place: Any) -> pa.Array:
        """The ids of these lists of frames; null for None."""
        keys = [None if frames is None else id(frames) for frames in lists]
        for key, frames in dict(zip(keys, lists, strict=True)).items():
            if key is not None and key not in self._lists:
                try:
                    self._lists[key] = self._stack(frames)
                except WrongValueError as error:
                    raise WrongValueError(f"{place(keys.index(key))}{error}") from None
        return pa.array([None if key is None else self._lists[key] for key in keys], pa.int32())

    def _stack(self, frames: Any) -> int:
        known = self._frame_objects
        objects = as_list(frames, "")
        try:
            numbers = tuple(map(known.__getitem__, map(id, objects)))
        except KeyError:
            for index, frame in enumerate(objects):
                if id(frame) not in known:
                    known[id(frame)] = self._frame(frame, f"[{index}]")
            numbers = tuple(map(known.__getitem__, map(id, objects)))
        return self._stacks.setdefault(numbers, len(self._stacks))

    def _frame(self, frame: Any, place: str) -> int:
        if type(frame) is not dict:
            wrong(place, frame, "a dictionary")
        for key in ("filename", "name"):
            if type(frame.get(key)) is not str:
                wrong(f"{place}.{key}", frame.get(key), "a text")
        line = frame.get("line")
        if type(line) is not int or not (-1 <= line <= _LAST_LINE or line == _UNKNOWN_LINE):
            wrong(f"{place}.line", line, "the number of a line")
        value = (frame["filename"], -1 if line == _UNKNOWN_LINE else line, frame["name"])
        return self._frames.setdefault(value, len(self._frames))

    def tables(self) -> dict[str, pa.Table]:
        """The tables stacks and frames."""
        lengths = np.fromiter(map(len, self._stacks), np.int64, len(self._stacks))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        numbers = np.fromiter((n for stack in self._stacks for n in stack), np.int32, int(lengths.sum()))
        stacks = {
            "id": pa.array(np.arange(len(self._stacks), dtype=np.int32)),
            "frames": pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers)),
        }
        files = [file for file, _, _ in self._frames]
        lines = [line for _, line, _ in self._frames]
        functions = [function for _, _, function in self._frames]
        frames = {
            "id": pa.array(np.arange(len(self._frames), dtype=np.int32)),
            "file": coded(files, {text: text for text in files}),
            "line": pa.array(lines, pa.int32()),
            "function": coded(functions, {text: text for text in functions}),
        }
        return {"stacks": pa.table(stacks), "frames": pa.table(frames)}
