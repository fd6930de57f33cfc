"""The typed face of the native decoder of spools and pickles. Needs neither torch nor a recorder."""

from collections.abc import Callable
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
from msgspec import Raw

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

class SpoolError(Exception): ...

class PickleError(Exception):
    """The bytes are not a pickle."""

class TruncatedPickleError(PickleError):
    """... because their end is missing."""

class RefusedPickleError(PickleError):
    """They are a pickle of more than plain values."""

def read_pickle(source: bytes | int) -> object:
    """The value of a pickle of plain values: of bytes, or of a file by its descriptor. Executes nothing."""

class StackTable:
    """The distinct stacks among lists of frames. What it was given must stay alive and unchanged."""

    def numbers(self, lists: list[object]) -> bytes | int:
        """Of each list or tuple its number, as int32; -1 for None. The index of the first that is none of these."""

    @property
    def frames(self) -> list[object]:
        """The distinct frames, and what is no frame."""

    @property
    def ends(self) -> bytes:
        """As int64, where in `content` each stack ends."""

    @property
    def content(self) -> bytes:
        """As int32, the numbers of the frames of all stacks."""

def nanoseconds(texts: list[Raw]) -> Ints | None:
    """Of microseconds as decimal text; -2^63 of an empty text. None if any has a form that is not plain."""

class Field:
    """A field of a class of msgspec.Struct: columns of lists of such structs."""

    def __init__(self, descriptor: object) -> None:
        """As the class has it: Event.name."""

    def times(self, rows: list[Any], /) -> Ints | None:
        """Of microseconds as JSON, nanoseconds; -2^63 of an empty text. None if any has a form that is not plain."""

    def integers(self, rows: list[Any], missing: int, /) -> Ints | None:
        """Whole numbers, `missing` for None. None if any is something else, or larger than 64 bits."""

    def numbers(self, rows: list[Any], /) -> npt.NDArray[np.float64] | None:
        """Floats, NaN for None. None if any is something else."""

    def codes(self, rows: list[Any], codes: dict[Any, int], missing: int, /) -> Ints:
        """codes[value] of each row, `missing` for None."""

    def any(self, rows: list[Any], /) -> bool:
        """Whether any of the texts is not empty."""

    def joined(self, rows: list[Any], /) -> bytes:
        """The JSON of all rows as one list, {} for an empty one."""

def pair_codes(first: Field, second: Field, rows: list[Any], codes: dict[Any, int], /) -> Ints:
    """codes[first, second] of each row."""

def chosen(rows: list[Any], places: Ints, /) -> list[Any]:
    """The rows at these places."""

def object_codes(
    parts: list[tuple[bytes, Field | bytes]],
    rows: list[Any],
    codes: dict[Any, int],
    missing: int,
    compact: Callable[[bytes], bytes],
    /,
) -> Ints:
    """Of each row the number of a JSON object of some parts; `missing` where all of them are empty.

    A part is its key as JSON, and a field of JSON, or the JSON that all rows have. `compact` gives a list or object of
    JSON without needless spaces.
    """

class JsonRows:
    """Distinct rows of some fields of JSON, numbered as they come."""

    def numbers(self, fields: list[Field], rows: list[Any], /) -> Ints:
        """The number of each row."""

    def texts(self, first: int) -> list[tuple[bytes, ...]]:
        """The distinct rows from one on."""

class Nesting:
    """Which call of a trace lies in which, by time on each thread. Calls may overlap without one lying in the other.

    Rows are sorted by their start, a call before those within it. Moments are rows that hold nothing.
    """

    def __init__(self, thread: Ints, start: Ints, end: Ints, moment: Mask) -> None:
        """Threads are numbered from 0."""

    @property
    def parent(self) -> Ints:
        """For each row the innermost open call, or -1."""

    @property
    def depth(self) -> Ints:
        """How many calls were open when each row began."""

    def nearest(self, chosen: Mask) -> Ints:
        """For each row the innermost of the chosen calls that holds it, or it itself; -1 for none."""

    def around(self, chosen: Mask) -> Ints:
        """The same for what holds a row, without itself."""

    def self_times(self) -> Ints:
        """The time of each call without that of its children."""

    def sums(self, rows: Ints, values: Ints) -> Ints:
        """For each call the values of all these rows that lie in it while it is open."""

class Batch:
    """Columns that Arrow takes over: pyarrow.record_batch(batch). Once."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class Spool:
    @overload
    def __init__(self, directory: bytes) -> None: ...
    @overload
    def __init__(self, definitions: int, events: int, definitions_size: int, events_size: int, head: bytes) -> None:
        """The spool as it was when its files, given by their descriptors, had these sizes, and the events this head."""

    def restrict_to(self, windows: list[tuple[int, int]], steps: list[tuple[int, int]]) -> None:
        """Decode what begins within these spans of ticks, with these steps: each its number and its tick."""

    def next(self) -> dict[str, Batch] | None:
        """The next rows of ops, allocs, marks, flows and counters."""

    def next_settled(self) -> list[tuple[str, Batch]]:
        """Instead of next(), of a spool that still grows: the rows that are settled, without calls that are open."""

    def grow(self, definitions_size: int, events_size: int) -> bool:
        """The files have these sizes now. False if the spool is to be decoded anew."""

    def finish(self) -> dict[str, Batch]:
        """The tables that are known at the end, or so far."""

    def inputs(self) -> Batch: ...
    @property
    def process(self) -> bytes: ...
    @property
    def node(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lost_events(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
