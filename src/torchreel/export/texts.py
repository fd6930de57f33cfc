"""What the ids of a reel say, as text: arguments, stacks, modules. Each distinct one is worked out once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.reel import Reel

_REMEMBERED = 50_000
# An escape that may be half of a surrogate pair.
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
# What the type of an argument is called that is a list of values.
_LIST = "ScalarList"


def whole(text: str) -> str:
    """The text with each half of a surrogate pair that stands alone replaced: it has no UTF-8, and Perfetto refuses
    a file that holds it in any other form."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def quoted(text: str) -> str:
    """The text as a JSON string; what is not ASCII stays as it is, because Perfetto does not undo all escapes."""
    return encode_basestring(whole(text))


def json_text(value: Any) -> str:
    """A value as JSON that every reader takes: a number that JSON has not, such as NaN, makes it a text."""
    try:
        return whole(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except ValueError:
        return quoted(json.dumps(value, ensure_ascii=False))


def object_text(text: str) -> str:
    """The JSON text of an object that is safe to take apart and to put into another; what is none becomes one."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = text
    if not isinstance(value, dict):
        return f'{{"args": {quoted(text)}}}'
    return json_text(value) if _HALVES.search(text) or text[:1] != "{" or text[-1:] != "}" else text


class TextColumn:
    """Turns a column of keys into a column of texts; null stays null."""

    def __init__(self, text: Callable[[Any], str | None]) -> None:
        self._text = text
        self._known: dict[Any, str | None] = {}

    def of(self, key: Any) -> str | None:
        """The text of one key."""
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = self._text(key)
        return self._known[key]

    def __call__(self, keys: pa.Array) -> pa.Array:
        encoded = keys.dictionary_encode()
        texts = pa.array([self.of(key) for key in encoded.dictionary.to_pylist()], pa.large_string())
        return texts.take(encoded.indices)


class _Rows:
    """The rows of a table with an `id`, by id."""

    def __init__(self, reel: Reel, name: str, process: int, columns: list[str]) -> None:
        table = reel.rows_of(name, [part for part in reel.parts if part.index == process], ["id", *columns])
        ids = table["id"].to_numpy()
        self._columns = [table[column].combine_chunks() for column in columns]
        self._positions = np.full(int(ids.max()) + 1 if len(ids) else 0, -1)
        self._positions[ids] = np.arange(len(ids))

    def get(self, id: int) -> list[Any] | None:
        """The values of one row, or None if the reel has no such row."""
        if not 0 <= id < len(self._positions) or self._positions[id] < 0:
            return None
        return [column[self._positions[id]].as_py() for column in self._columns]


class Details:
    """What the ids in the ops of one process say. Without `values`, lists of numbers have none."""

    def __init__(self, reel: Reel, process: int, values: bool = True) -> None:
        self._values = values
        self._inputs = _Rows(reel, "inputs", process, ["dims", "strides", "dtypes", "scalars", "keywords"])
        self._stacks = _Rows(reel, "stacks", process, ["frames"])
        self._frames = _Rows(reel, "frames", process, ["file", "line", "function"])
        self._modules = _Rows(reel, "modules", process, ["path"])
        self._frame_texts = TextColumn(self._frame)

    def inputs(self, id: int) -> dict[str, str]:
        """A list of arguments under Kineto's names, each value a JSON text."""
        row = self._inputs.get(id)
        if row is None:
            return {}
        dims, strides, dtypes, scalars, _ = row
        if not self._values and dtypes is not None:
            kinds = json.loads(dtypes)
            values = zip(kinds, json.loads(scalars), strict=True)
            scalars = json.dumps(["" if kind == _LIST else value for kind, value in values])
            dtypes = json.dumps(["" if kind == _LIST else kind for kind in kinds])
        texts = {"Concrete Inputs": scalars, "Input type": dtypes, "Input Strides": strides, "Input Dims": dims}
        return {name: _json(text) for name, text in texts.items() if text is not None}

    def keywords(self, id: int) -> dict[str, Any]:
        """The arguments of a list that were given by name."""
        row = self._inputs.get(id)
        return json.loads(row[4]) if row is not None and row[4] is not None else {}

    def frames(self, stack: int) -> list[str]:
        """The frames of a stack as PyTorch writes them, the innermost first."""
        row = self._stacks.get(stack)
        texts = [self._frame_texts.of(frame) for frame in row[0]] if row is not None else []
        return [text for text in texts if text is not None]

    def module(self, id: int) -> str | None:
        """The path of a module."""
        row = self._modules.get(id)
        return None if row is None else row[0]

    def _frame(self, id: int) -> str | None:
        row = self._frames.get(id)
        return None if row is None else f"{row[0]}({row[1]}): {row[2]}"


def _json(text: str) -> str:
    """A JSON text that is safe to put into another: as it is, unless it is broken or hides half a surrogate pair."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return quoted(text)
    return json_text(value) if "\\u" in text else text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
