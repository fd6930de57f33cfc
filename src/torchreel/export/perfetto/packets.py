"""Perfetto's trace packets: tracks, and sequences of events on them.

Within a sequence names and other texts are written once and referred to by number, and times are counted from the
packet before. The numbers of the fields are those of Perfetto's trace_packet.proto and of the messages it names.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import BinaryIO

import numpy as np

from torchreel.export.perfetto.protobuf import double, fixed64, message, number, text, varint
from torchreel.export.texts import whole

# Lists of interned texts: their fields in InternedData.
_CATEGORIES, _NAMES, _ANNOTATION_NAMES, _STRINGS = 1, 2, 3, 29

_PACKET = 1
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED = 6, 8, 10, 11, 12
_SEQUENCE_FLAGS, _CLOCK_ID, _DEFAULTS, _TRACK_DESCRIPTOR = 13, 58, 59, 60
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_CATEGORY_ID, _ANNOTATION, _TYPE, _NAME_ID, _TRACK_UUID, _COUNTER_VALUE, _FLOW_ID = 3, 4, 9, 10, 11, 30, 47
_DOUBLE_VALUE = 44
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_REALTIME, _BOOTTIME, _OWN_CLOCK = 1, 6, 64
_SIZE_BYTES = 3

_FLUSH_BYTES = 1 << 20
# Longer texts, stacks above all, are remembered by their digest.
_LONG = 64
_TIMESTAMP_TAG = varint(_TIMESTAMP << 3)
_PACKET_TAG = varint(_PACKET << 3 | 2)
_SMALL_VARINTS = [varint(value) for value in range(1 << 14)]
_VARINT_BOUNDS = np.array([1 << 7 * size for size in range(1, 9)])
_END_EVENT = message(_TRACK_EVENT, number(_TYPE, _END))


class PacketFile:
    """Collects packets and writes them in large pieces."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = bytearray()
        self._uuids = 0
        self._sequences = 0

    def packet(self, body: bytes) -> None:
        self.write(_PACKET_TAG + varint(len(body)) + body)

    def write(self, packets: bytes) -> None:
        """Add packets that are complete."""
        self._buffer += packets
        if len(self._buffer) > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        self._file.write(self._buffer)
        self._buffer.clear()

    def _track(self, *fields: bytes) -> int:
        self._uuids += 1
        self.packet(message(_TRACK_DESCRIPTOR, number(1, self._uuids), *fields))
        return self._uuids

    def process(self, pid: int, name: str, label: str) -> int:
        """Describe a process; returns the number by which its tracks refer to it."""
        return self._track(message(3, number(1, pid), text(6, name), text(8, label)))

    def thread(self, process: int, pid: int, tid: int, name: str) -> int:
        return self._track(number(5, process), message(4, number(1, pid), number(2, tid), text(5, name)))

    def child(self, parent: int, name: str) -> int:
        """A track that is no thread, below one that is, or below a process."""
        return self._track(number(5, parent), text(2, name))

    def counter(self, process: int, name: str, of_bytes: bool = True) -> int:
        """A track of numbers of bytes, or of plain numbers."""
        unit = message(8, number(3, _SIZE_BYTES)) if of_bytes else message(8)
        return self._track(number(5, process), text(2, name), unit)

    def sequence(self, track: int, start_ns: int) -> Sequence:
        """Begin a sequence of events on a track, none of them before `start_ns`."""
        self._sequences += 1
        return Sequence(self, self._sequences, track, start_ns)


class Sequence:
    """Events on one track, in the order of time."""

    def __init__(self, packets: PacketFile, id: int, track: int, start_ns: int) -> None:
        self._packets = packets
        self._time = start_ns
        self._id = number(_SEQUENCE, id)
        self._tail = self._id + number(_SEQUENCE_FLAGS, _NEEDS_STATE)
        self._numbers: dict[tuple[int, str | bytes], int] = {}
        self._interned = bytearray()
        self._open_ends = np.zeros(0, dtype=np.int64)
        clocks = [message(1, number(1, clock), number(2, start_ns)) for clock in (_BOOTTIME, _REALTIME)]
        clocks.append(message(1, number(1, _OWN_CLOCK), number(2, start_ns), number(3, 1)))
        defaults = message(_DEFAULTS, number(_CLOCK_ID, _OWN_CLOCK), message(_TRACK_EVENT, number(_TRACK_UUID, track)))
        self._packets.packet(
            self._id + number(_SEQUENCE_FLAGS, _STATE_CLEARED) + defaults + message(_CLOCK_SNAPSHOT, *clocks)
        )

    def _number_of(self, kind: int, value: str) -> int:
        """The number of a text of this kind; a new one is written with the next event."""
        key = (kind, value if len(value) <= _LONG else hashlib.blake2b(whole(value).encode(), digest_size=16).digest())
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._numbers) + 1
            self._interned += message(kind, number(1, found), text(2, value))
        return found

    def begin(self, name: str) -> bytes:
        """The fields that begin a slice of this name."""
        return number(_TYPE, _BEGIN) + number(_NAME_ID, self._number_of(_NAMES, name))

    def category(self, name: str) -> bytes:
        """The field that puts an event into a category."""
        return number(_CATEGORY_ID, self._number_of(_CATEGORIES, name))

    def annotation(self, name: str, value: str) -> bytes:
        """An argument that is a text; the same text is written once."""
        name_id = number(1, self._number_of(_ANNOTATION_NAMES, name))
        return message(_ANNOTATION, name_id, number(17, self._number_of(_STRINGS, value)))

    def count(self, name: str, value: int) -> bytes:
        """An argument that is a number."""
        return message(_ANNOTATION, number(1, self._number_of(_ANNOTATION_NAMES, name)), number(4, value))

    def slices(self, start_ns: np.ndarray, end_ns: np.ndarray, events: list[bytes], which: np.ndarray) -> None:
        """Write slices that are strictly nested and come in the order in which they began.

        `events` are the distinct beginnings, with the fields of `begin`, and `which` says which one each slice has.
        A slice ends before another begins at the same moment; those that outlast the last beginning stay open.
        """
        ends = np.concatenate([self._open_ends, end_ns])
        due = np.flatnonzero(ends <= start_ns[-1])
        times = np.concatenate([start_ns, ends[due]])
        # At one moment: first the ends, the innermost first, then the beginnings, the outermost first.
        order = np.lexsort((np.concatenate([np.arange(len(start_ns)), -1 - due]), times))
        kinds = np.concatenate([which, np.full(len(due), len(events))])
        self._open_ends = np.delete(ends, due)
        self._write_all(times[order], kinds[order], [*events, _END_EVENT])

    def close(self) -> None:
        """End all slices."""
        ends = self._open_ends[::-1]
        self._open_ends = ends[:0]
        self._write_all(ends, np.zeros(len(ends), dtype=np.int64), [_END_EVENT])

    def _write_all(self, times_ns: np.ndarray, kinds: np.ndarray, events: list[bytes]) -> None:
        """Write many events; the same as one after the other, but for the time that it takes."""
        if len(times_ns) == 0:
            return
        self._write_interned()
        bodies = [self._tail + event for event in events]
        deltas = np.diff(times_ns, prepend=self._time)
        sizes = len(_TIMESTAMP_TAG) + _varint_sizes(deltas) + np.array([len(body) for body in bodies])[kinds]
        heads = {size: _PACKET_TAG + varint(size) + _TIMESTAMP_TAG for size in np.unique(sizes).tolist()}
        limit = len(_SMALL_VARINTS)
        parts = zip(
            [heads[size] for size in sizes.tolist()],
            [_SMALL_VARINTS[delta] if delta < limit else varint(delta) for delta in deltas.tolist()],
            [bodies[kind] for kind in kinds.tolist()],
            strict=True,
        )
        self._time = int(times_ns[-1])
        self._packets.write(b"".join(itertools.chain.from_iterable(parts)))

    def instant(self, time_ns: int, name: str, category: str) -> None:
        name_id = number(_NAME_ID, self._number_of(_NAMES, name))
        self._write(time_ns, event(number(_TYPE, _INSTANT) + name_id + self.category(category)))

    def values(self, times_ns: np.ndarray, values: np.ndarray) -> None:
        """The values of a counter, and since when it had each."""
        distinct, which = np.unique(values, return_inverse=True)
        head = number(_TYPE, _COUNTER)
        field = double if values.dtype.kind == "f" else number
        place = _DOUBLE_VALUE if values.dtype.kind == "f" else _COUNTER_VALUE
        self._write_all(times_ns, which, [event(head + field(place, value)) for value in distinct.tolist()])

    def _write(self, time_ns: int, event: bytes) -> None:
        self._write_interned()
        self._packets.packet(_TIMESTAMP_TAG + varint(time_ns - self._time) + self._tail + event)
        self._time = time_ns

    def _write_interned(self) -> None:
        """Write the texts that are new: they must precede the events that refer to them."""
        if self._interned:
            self._packets.packet(self._tail + message(_INTERNED, bytes(self._interned)))
            self._interned.clear()


def _varint_sizes(values: np.ndarray) -> np.ndarray:
    """How many bytes each value takes as a varint."""
    sizes: np.ndarray = np.searchsorted(_VARINT_BOUNDS, values, side="right") + 1
    return sizes


def event(fields: bytes) -> bytes:
    """An event from its fields."""
    return message(_TRACK_EVENT, fields)


def flow(arrow: int) -> bytes:
    """An end of an arrow: two events that have the same are joined."""
    return fixed64(_FLOW_ID, arrow)
