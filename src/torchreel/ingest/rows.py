"""Rows of a foreign file, read as columns: a list of dicts in, Arrow columns out, every value checked.

Each column is one pass over the rows, without a Python call per row; only when a value is wrong are the rows
walked again, to name it by its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_INT64 = 2**63 - 1
_ADDRESS = 2**62 - 1
_SUM = 2.0**61
# Characters, of which each may take four bytes: what a column of text can hold, and what its dictionary may.
_COLUMN = 2**29 - 1
_DICTIONARY = 2**20

Locate = Callable[[int], str]


class WrongValueError(Exception):
    """A value that cannot be: the text says where it stands, what it is and what should be there."""


class Budget:
    """How much a file may hold: one that refers to the same list or text again and again would have no end of it."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit = self._left = limit
        self._what = what

    def spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise WrongValueError(f"there are more than {self._limit} {self._what}, which repeat themselves")


def shown(value: object) -> str:
    """A value for a message: short, whatever it is."""
    if type(value) is int:
        return str(value) if abs(value) < 10**40 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        return repr(value[:40]) + ("..." if len(value) > 40 else "")
    if value is None or type(value) in (bool, float):
        return repr(value)
    return f"a {type(value).__name__}"


def wrong(location: str, value: object, expected: str) -> NoReturn:
    raise WrongValueError(f"{location} is {shown(value)}, not {expected}")


def whole(text: str) -> str:
    """The text with each half of a surrogate pair that stands alone replaced: no file of ours can hold it."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_list(value: Any, location: str) -> Sequence[Any]:
    """The value, which must be a list or a tuple."""
    if type(value) is list or type(value) is tuple:
        return value
    wrong(location, value, "a list")


def coded(keys: list[Any], texts: dict[Any, str]) -> pa.DictionaryArray:
    """A column of text: of each key its text, null for a key that has none. Each distinct text is held once."""
    numbers: dict[str, int] = {}
    codes = {key: numbers.setdefault(whole(text), len(numbers)) for key, text in texts.items()}
    indices = np.fromiter(map(codes.get, keys, repeat(-1)), np.int32, len(keys))
    lengths = np.fromiter(map(len, numbers), np.int64, len(numbers))
    # A file of a table holds distinct texts once only as long as they are short enough together.
    if lengths.sum() > _DICTIONARY and lengths[indices[indices >= 0]].sum() > _COLUMN:
        raise WrongValueError(f"there are more than {_COLUMN} characters of text in one column")
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32(), mask=indices < 0), pa.array(list(numbers), pa.string())
    )


def matches(column: pa.DictionaryArray, text: str) -> NDArray[Any]:
    """Which rows of a column of text are this one. Texts are not spread over the rows: they may be long."""
    texts = column.dictionary.to_pylist()
    code = texts.index(text) if text in texts else len(texts)
    found: NDArray[Any] = column.indices.fill_null(-1).to_numpy() == code
    return found


class Rows:
    """Rows of one kind; `location` names one by its index, for messages."""

    def __init__(self, rows: Sequence[Any], location: Locate) -> None:
        self.rows = rows
        self.location = location
        if not set(map(type, rows)) <= {dict}:
            index = next(i for i, row in enumerate(rows) if type(row) is not dict)
            wrong(location(index), rows[index], "a dictionary")

    def __len__(self) -> int:
        return len(self.rows)

    def has(self, key: str) -> bool:
        """Whether any row has the key."""
        return any(key in row for row in self.rows)

    def values(self, key: str, required: bool = False) -> list[Any]:
        """The values under a key; None where there is none, unless it is required."""
        try:
            return [row[key] for row in self.rows]
        except KeyError:
            if required:
                index = next(i for i, row in enumerate(self.rows) if key not in row)
                raise WrongValueError(f"{self.location(index)} has no {key!r}") from None
        return [row.get(key) for row in self.rows]

    def checked(self, key: str, kinds: Collection[type], expected: str, required: bool) -> list[Any]:
        """The values under a key, which are all of these types, or missing."""
        values = self.values(key, required)
        found = set(map(type, values))
        if not found <= {*kinds, *(() if required else (type(None),))}:
            allowed = {*kinds} if required else {*kinds, type(None)}
            index = next(i for i, value in enumerate(values) if type(value) not in allowed)
            wrong(f"{self.location(index)}.{key}", values[index], expected)
        return values

    def integers(
        self, key: str, expected: str, low: int = 0, high: int = _INT64, required: bool = True, scale: int = 1
    ) -> pa.Array:
        """A column of 64-bit integers between two bounds, with 0 between them; each times `scale`."""
        values = self.checked(key, (int,), expected, required)
        mask = np.fromiter((value is None for value in values), bool, len(values)) if None in values else None
        numbers = [0 if value is None else value for value in values] if mask is not None else values
        try:
            array = np.array(numbers, np.int64)
        except OverflowError:
            self._refuse_range(key, values, expected, low, high)
        if len(array) and not (low <= array.min() and array.max() <= high):
            self._refuse_range(key, values, expected, low, high)
        return pa.array(array * scale, mask=mask)

    def addresses(self, key: str, required: bool = True) -> pa.Array:
        """A column of addresses to which a number of bytes can be added."""
        return self.integers(key, "an address", high=_ADDRESS, required=required)

    def sizes(self, key: str, required: bool = True) -> pa.Array:
        """A column of numbers of bytes that can be added up."""
        column = self.integers(key, "a number of bytes", required=required)
        if float(np.sum(column.fill_null(0).to_numpy(), dtype=np.float64)) > _SUM:
            raise WrongValueError(f"the values of {key!r} add up to more bytes than there can be")
        return column

    def _refuse_range(self, key: str, values: list[Any], expected: str, low: int, high: int) -> NoReturn:
        index = next(i for i, value in enumerate(values) if value is not None and not low <= value <= high)
        wrong(f"{self.location(index)}.{key}", values[index], expected)

    def booleans(self, key: str) -> pa.Array:
        """A column of booleans, null where there is none."""
        return pa.array(self.checked(key, (bool,), "true or false", False), pa.bool_())

    def texts(self, key: str, choices: Collection[str] = (), required: bool = True) -> pa.DictionaryArray:
        """A column of text; one of `choices`, if there are any."""
        values = self.checked(key, (str,), "a text", required)
        distinct = {value: value for value in dict.fromkeys(values) if value is not None}
        if choices and not distinct.keys() <= set(choices):
            index = next(i for i, value in enumerate(values) if value is not None and value not in choices)
            wrong(f"{self.location(index)}.{key}", values[index], f"one of {', '.join(choices)}")
        return coded(values, distinct)

    def derived(self, key: str, text: Callable[[Any], str | None], expected: str) -> pa.DictionaryArray:
        """A column of text that is made of other values, each object once; `text` gives None for what it cannot be."""
        values = self.values(key)
        keys = [None if value is None else id(value) for value in values]
        texts = {}
        for number, value in dict(zip(keys, values, strict=True)).items():
            if number is None:
                continue
            made = text(value)
            if made is None:
                wrong(f"{self.location(keys.index(number))}.{key}", value, expected)
            texts[number] = made
        return coded(keys, texts)
