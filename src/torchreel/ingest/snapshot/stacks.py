"""Lists of frames -> the tables stacks and frames. The same list is read once, however often it is referred to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel import _decode
from torchreel.ingest.rows import Budget, Locate, Rows, WrongValueError, coded, whole, wrong

# What torch writes for a line that Python does not know: -1 without a sign.
_UNKNOWN_LINE = 2**64 - 1
_LAST_LINE = 2**31 - 1

# What torch.cuda.memory._snapshot(augment_with_fx_traces=True) adds to frames of generated code.
_FX_KEYS = ("fx_node_op", "fx_node_name", "fx_node_target", "fx_original_trace")

_FX_CHARACTERS = 2**28

Frame = tuple[str, int, str, str | None]


class Stacks:
    """The distinct stacks of a snapshot, which must stay alive and unchanged: objects are known by their identity."""

    def __init__(self) -> None:
        self._table = _decode.StackTable()
        self._sources: list[tuple[list[Any], Locate]] = []

    def column(self, rows: Rows, key: str = "frames") -> pa.Array:
        """The ids of the stacks under a key; null where a row has none."""
        lists = rows.values(key)
        self._sources.append((lists, lambda index: f"{rows.location(index)}.{key}"))
        numbers = self._table.numbers(lists)
        if isinstance(numbers, int):
            wrong(f"{rows.location(numbers)}.{key}", lists[numbers], "a list")
        ids = np.frombuffer(numbers, np.int32)
        return pa.array(ids, mask=ids < 0)

    def tables(self) -> dict[str, pa.Table]:
        """The tables stacks and frames, once all columns have been read."""
        characters = Budget(_FX_CHARACTERS, "characters of FX nodes")
        frames = [self._frame(frame, characters) for frame in self._table.frames]
        ends = np.frombuffer(self._table.ends, np.int64)
        content = np.frombuffer(self._table.content, np.int32)
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        stacks = {
            "id": pa.array(np.arange(len(ends), dtype=np.int32)),
            "frames": pa.ListArray.from_arrays(pa.array(offsets), pa.array(content)),
        }
        files = [file for file, _, _, _ in frames]
        functions = [function for _, _, function, _ in frames]
        columns = {
            "id": pa.array(np.arange(len(frames), dtype=np.int32)),
            "file": coded(files, {text: text for text in files}),
            "line": pa.array([line for _, line, _, _ in frames], pa.int32()),
            "function": coded(functions, {text: text for text in functions}),
            "fx": pa.array([fx for _, _, _, fx in frames], pa.string()),
        }
        return {"stacks": pa.table(stacks), "frames": pa.table(columns)}

    def _frame(self, frame: object, characters: Budget) -> Frame:
        try:
            return _frame(frame, characters)
        except WrongValueError as error:
            raise WrongValueError(f"{self._place(frame)}{error}") from None

    def _place(self, frame: object) -> str:
        """Where a frame stands for the first time."""
        for lists, location in self._sources:
            for index, frames in enumerate(lists):
                for position, other in enumerate(frames or ()):
                    if other is frame:
                        return f"{location(index)}[{position}]"
        return "a frame"


def _frame(frame: Any, characters: Budget) -> Frame:
    if type(frame) is not dict:
        wrong("", frame, "a dictionary")
    file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
    if type(file) is not str:
        wrong(".filename", file, "a text")
    if type(name) is not str:
        wrong(".name", name, "a text")
    if type(line) is not int or not (-1 <= line <= _LAST_LINE or line == _UNKNOWN_LINE):
        wrong(".line", line, "the number of a line")
    return file, -1 if line == _UNKNOWN_LINE else line, name, _fx(frame, characters)


def _fx(frame: dict[str, Any], characters: Budget) -> str | None:
    """The node of torch.fx and its original line, as JSON; None if the frame has none."""
    found = {key: frame[key] for key in _FX_KEYS if key in frame}
    for key, text in found.items():
        if text is not None and type(text) is not str:
            wrong(f".{key}", text, "a text")
        characters.spend(len(text or ""))
    return json.dumps({key: text and whole(text) for key, text in found.items()}) if found else None
