"""The arguments of events: a list of JSON objects -> columns. What no column takes stays, as JSON."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from torchreel._decode import Field, JsonRows, object_codes
from torchreel.ingest.kineto.columns import NOTHING, Codes, Ints
from torchreel.ingest.kineto.events import Event

_ROWS = msgspec.json.Decoder(list[dict[str, Raw]])
_ROW = msgspec.json.Decoder(dict[str, Raw])
_INTS = msgspec.json.Decoder(list[int])
_FLOATS = msgspec.json.Decoder(list[float])
_ARGS = Field(Event.args)
_FAULTS = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)

_ABSENT = Raw(b"")
_NO_INT = str(NOTHING).encode()
_NO_FLOAT = b"-1e308"

Column: TypeAlias = list[Raw]  # the JSON of each event's value, empty for none


class Arguments:
    """The arguments of some events, a column for each name. Each is taken once; `rest` has those that nobody took.

    `whole` and `numbers` are names that will be taken by `ints` and `floats`: they are decoded at once as such.
    """

    def __init__(self, events: list[Event], whole: Sequence[str] = (), numbers: Sequence[str] = ()) -> None:
        self._count = len(events)
        self._events = events
        self._same: dict[str, bytes] = {}
        self._rows, self._fields, self._columns = _decoded(events, whole, numbers)
        self._by_rows = len(self._rows) == len(events)

    def __len__(self) -> int:
        return self._count

    def has(self, name: str) -> bool:
        """Whether any event has an argument of this name."""
        field = self._fields.get(name)
        if field is not None and not field.typed and not field.values.any(self._rows):
            del self._fields[name]
        return name in self._fields or name in self._columns or name in self._same

    def _column(self, name: str) -> Column:
        """The JSON under a name that there is; it is taken."""
        field = self._fields.pop(name, None)
        return self._columns.pop(name) if field is None else list(map(field.get, self._rows))

    def present(self, name: str) -> list[bool]:
        """Which events have an argument of this name."""
        if not self.has(name):
            return [False] * self._count
        field = self._fields.get(name)
        return list(map(bool, self._columns[name] if field is None else map(field.get, self._rows)))

    def put(self, name: str, value: Any) -> None:
        """Give all events the same argument."""
        self.drop(name)
        self._same[name] = msgspec.json.encode(value)

    def row(self, index: int) -> dict[str, Any]:
        """The values of one event's arguments, but for those that are decoded as numbers."""
        given = {name: column[index] for name, column in self._columns.items()}
        given |= {name: field.get(self._rows[index]) for name, field in self._fields.items() if not field.typed}
        return {name: value_of(raw) for name, raw in given.items() if raw}

    def ints(self, *names: str) -> Ints:
        """The whole numbers under the first of these names that there is; another value stays where it is."""
        result = None
        for name in names:
            if self.has(name):
                found = self._ints(name)
                result = found if result is None else np.where(result == NOTHING, found, result)
        return np.full(self._count, NOTHING) if result is None else result

    def _ints(self, name: str) -> Ints:
        field = self._fields.get(name)
        if field is not None and field.typed:
            del self._fields[name]
            found = field.values.integers(self._rows, NOTHING)
            if found is not None:
                return found
            self._columns[name] = _columns(self._events)[name]
        column = self._column(name)
        try:
            return np.array(_INTS.decode(_list([value or _NO_INT for value in column])), np.int64)
        except _FAULTS:
            return np.array(self._one_by_one(name, column, _int, NOTHING), np.int64)

    def floats(self, name: str) -> NDArray[np.float64]:
        """Numbers; NaN where there is none."""
        if not self.has(name):
            return np.full(self._count, np.nan)
        array = self._floats(name)
        array[array == -1e308] = np.nan
        return array

    def _floats(self, name: str) -> NDArray[np.float64]:
        field = self._fields.get(name)
        if field is not None and field.typed:
            found = field.values.numbers(self._rows)
            if found is not None:
                del self._fields[name]
                return found
        column = self._column(name)
        try:
            return np.array(_FLOATS.decode(_list([value or _NO_FLOAT for value in column])), np.float64)
        except _FAULTS:
            return np.array(self._one_by_one(name, column, _float, math.nan), np.float64)

    def text_codes(self, name: str, codes: Codes) -> Ints:
        """The numbers of texts; NOTHING where there is none, an empty one, or something else."""
        if not self.has(name):
            return np.full(self._count, NOTHING)
        if name in self._fields:
            numbers, rows = self.distinct(name)
            texts = [_text(value_of(Raw(raw))) if raw else "" for (raw,) in rows]
            if None not in texts:
                return codes.of(text or None for text in texts)[numbers]
            self._columns[name] = [Raw(rows[number][0]) for number in numbers.tolist()]
        column = self._column(name)
        return codes.of(text or None for text in self._one_by_one(name, column, _text, None))

    def _one_by_one(self, name: str, column: Column, read: Callable[[Any], Any], none: Any) -> list[Any]:
        """What `read` makes of each value; one of which it makes nothing stays where it is."""
        values = [value_of(raw) if raw else None for raw in column]
        found = [read(value) for value in values]
        self._leave(name, [value is not None and one is None for value, one in zip(values, found, strict=True)], column)
        return [none if one is None else one for one in found]

    def distinct(self, *names: str) -> tuple[Ints, list[tuple[bytes, ...]]]:
        """JSON as it stands in the file: which distinct row of these names each event has, and those rows."""
        if self._columns or not self._by_rows:
            given = [self._column(name) if self.has(name) else [_ABSENT] * self._count for name in names]
            codes = Codes()
            numbers = codes.of(zip(*(map(bytes, column) for column in given), strict=True))
            return numbers, list(codes)
        fields = {name: self._fields.pop(name) for name in names if self.has(name)}
        rows = JsonRows()
        numbers = rows.numbers([field.values for field in fields.values()], self._rows)
        places = [list(fields).index(name) if name in fields else None for name in names]
        return numbers, [tuple(b"" if at is None else row[at] for at in places) for row in rows.texts(0)]

    def shapes(self, name: str, codes: Codes) -> Ints:
        """The numbers of lists as JSON; NOTHING where there is none. Another value stays where it is."""
        if not self.has(name):
            return np.full(self._count, NOTHING)
        numbers, rows = self.distinct(name)
        lists = [raw if raw[:1] == b"[" else None for (raw,) in rows]
        if any(raw and one is None for (raw,), one in zip(rows, lists, strict=True)):
            column = [rows[number][0] for number in numbers.tolist()]
            self._leave(name, [lists[number] is None for number in numbers.tolist()], column)
        return codes.of(lists)[numbers]

    def _leave(self, name: str, which: Sequence[bool], column: Sequence[Raw | bytes]) -> None:
        """Put some values of a column back."""
        left = [Raw(value) if chosen else _ABSENT for chosen, value in zip(which, column, strict=True)]
        if any(left):
            self._columns[name] = left

    def drop(self, *names: str) -> None:
        for name in names:
            self._fields.pop(name, None)
            self._columns.pop(name, None)

    def rest(self, codes: Codes) -> Ints:
        """For each event the number of its other arguments as a JSON object, sorted by name; NOTHING for none."""
        typed = [name for name, field in self._fields.items() if field.typed]
        assert not typed, f"nobody took {', '.join(typed)}"
        names = sorted({*self._fields, *self._columns, *self._same})
        if not names:
            return np.full(self._count, NOTHING)
        if self._columns or not self._by_rows:
            return self._mixed_rest(names, codes)
        parts = [
            (msgspec.json.encode(name), self._fields[name].values if name in self._fields else self._same[name])
            for name in names
        ]
        return object_codes(parts, self._rows, codes, NOTHING, _compact)

    def _mixed_rest(self, names: list[str], codes: Codes) -> Ints:
        """The same where the values of some names are a list."""
        keys = [msgspec.json.encode(name).replace(b"%", b"%%") + b": %b" for name in names]
        same = self._same
        columns = [[same[name]] * self._count if name in same else map(bytes, self._column(name)) for name in names]
        rows = list(zip(*columns, strict=True))
        objects = {row: _object(keys, row) for row in set(rows)}
        return codes.of(objects[row] for row in rows)


def _decoded(
    events: list[Event], whole: Sequence[str], numbers: Sequence[str]
) -> tuple[list[Any], dict[str, _Field], dict[str, Column]]:
    """A struct for each event and their fields; or columns, if an event has another name than those looked at."""
    text = _ARGS.joined(events)
    names = _names(events)
    for typed in ((whole, numbers), ((), ())):
        kind = _KINDS.of(names, *typed)
        try:
            if kind is not None:
                return kind.rows(text), dict(kind.fields), {}
        except _FAULTS:
            pass
    columns = _columns(events)
    _KINDS.widen(names, tuple(columns))
    return [], {}, columns


def _names(events: list[Event]) -> tuple[str, ...]:
    """The names that some of the events have."""
    some = events[:: max(len(events) // _LOOKED_AT, 1)]
    return tuple(sorted({name for event in some for name in _row(event.args)}))


def _columns(events: list[Event]) -> dict[str, Column]:
    """The values under each name that there is."""
    try:
        rows = _ROWS.decode(_ARGS.joined(events))
    except _FAULTS:
        rows = [_row(event.args) for event in events]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, _ABSENT) for row in rows] for name in names}


class _Field(NamedTuple):
    get: Callable[[Any], Any]
    values: Field
    typed: bool  # a number already, NOTHING or NaN where there is none


class _Kind:
    """Arguments of these names and no others, which are decoded without a dictionary for each event."""

    def __init__(self, names: tuple[str, ...], whole: Sequence[str], numbers: Sequence[str]) -> None:
        fields: list[tuple[str, Any, Any]] = []
        for number, name in enumerate(names):
            kind, absent = (int, NOTHING) if name in whole else (float, math.nan) if name in numbers else (Raw, _ABSENT)
            fields.append((f"field_{number}", kind, absent))
        renamed = {field[0]: name for field, name in zip(fields, names, strict=True)}
        struct = msgspec.defstruct("Row", fields, rename=renamed, forbid_unknown_fields=True, gc=False)
        self._decoder = msgspec.json.Decoder(list[struct])  # type: ignore[valid-type]
        self.fields = {
            name: _Field(operator.attrgetter(field), Field(getattr(struct, field)), kind is not Raw)
            for (field, kind, _), name in zip(fields, names, strict=True)
        }

    def rows(self, text: bytes) -> list[Any]:
        """The structs of a list of objects; a fault if any has another name, or another value than a number."""
        return self._decoder.decode(text)


class _Kinds:
    """The kinds that were seen, by the names that some of the events have."""

    def __init__(self) -> None:
        self._wider: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._kinds: dict[Any, _Kind] = {}

    def of(self, names: tuple[str, ...], whole: Sequence[str], numbers: Sequence[str]) -> _Kind | None:
        names = self._wider.get(names, names)
        key = (names, whole, numbers)
        kind = self._kinds.get(key)
        if kind is None and len(self._kinds) < _MOST_KINDS and _are_plain(names):
            kind = self._kinds[key] = _Kind(names, whole, numbers)
        return kind

    def widen(self, names: tuple[str, ...], others: tuple[str, ...]) -> None:
        """Events of which some have the first names may have the others, too."""
        every = tuple(dict.fromkeys((*self._wider.get(names, names), *others)))
        if _are_plain(every) and len(self._wider) < _MOST_KINDS:
            self._wider[names] = every


def _are_plain(names: Sequence[str]) -> bool:
    """Whether msgspec takes them as names of fields."""
    return len(names) <= _MOST_NAMES and all(name.isprintable() and not {'"', "\\"} & set(name) for name in names)


# More than any profiler writes: a hostile file is read without kinds.
_LOOKED_AT = 50
_MOST_KINDS = 1_000
_MOST_NAMES = 100
_KINDS = _Kinds()


def _row(text: Raw) -> dict[str, Raw]:
    try:
        return _ROW.decode(text or b"{}")
    except _FAULTS:
        return {} if bytes(text) == b"null" else {"args": Raw(text)}


def _list(values: Sequence[Any]) -> bytes:
    return b"[%b]" % b",".join(values)


def value_of(raw: Raw) -> Any:
    """The value of a JSON text; None for what has none."""
    try:
        return msgspec.json.decode(raw)
    except _FAULTS:
        return None


def _int(value: Any) -> int | None:
    if type(value) is str and value.strip().removeprefix("-").isdecimal() and len(value) < 20:
        value = int(value)
    if type(value) is float and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return value if type(value) is int and NOTHING <= value < 2**63 else None


def _float(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < 1e300 else None


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


def _object(keys: Sequence[bytes], row: Sequence[bytes]) -> str | None:
    parts = [key % _compact(value) for key, value in zip(keys, row, strict=True) if value]
    return (b"{%b}" % b", ".join(parts)).decode("utf-8", "replace") if parts else None


def _compact(text: bytes) -> bytes:
    """JSON in one form, whatever spaces the file has."""
    if text[:1] not in (b"[", b"{"):
        return text
    return msgspec.json.format(text, indent=0)
