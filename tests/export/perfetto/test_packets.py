from __future__ import annotations

import io
import random

import numpy as np

from torchreel.export.perfetto.packets import PacketFile, event


def decode(data: bytes) -> list[tuple[int, int | bytes]]:
    """The fields of a message: varints and byte strings, and eight bytes as a number."""
    fields: list[tuple[int, int | bytes]] = []
    at = 0

    def read_varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = read_varint()
        if tag & 7 == 0:
            fields.append((tag >> 3, read_varint()))
        else:
            size = read_varint() if tag & 7 == 2 else 8
            fields.append((tag >> 3, data[at : at + size]))
            at += size
    return fields


def events_of(data: bytes) -> list[tuple[int, int]]:
    """Time and type of each event of a file with one sequence."""
    found = []
    time = 1000
    for _, packet in decode(data):
        assert isinstance(packet, bytes)
        fields = dict(decode(packet))
        if 8 in fields:
            delta, body = fields[8], fields[11]
            assert isinstance(delta, int)
            assert isinstance(body, bytes)
            time += delta
            kind = dict(decode(body))[9]
            assert isinstance(kind, int)
            found.append((time, kind))
    return found


def test_slices_of_many_batches_are_as_those_of_one() -> None:
    rng = random.Random(5)
    starts, ends = [1000], [900_000_000]
    for _ in range(300):
        begin = max(starts[-1], 1000) + rng.choice([0, 1, 100, 20_000, 3_000_000])
        starts.append(begin)
        inside = min(end for start, end in zip(starts[:-1], ends, strict=True) if start <= begin < end)
        ends.append(rng.choice([inside, min(inside, begin + 1), begin + max(1, (inside - begin) // 2)]))
    written = []
    for size in (1, 7, len(starts)):
        file = io.BytesIO()
        packets = PacketFile(file)
        sequence = packets.sequence(packets.child(1, "track"), 1000)
        for at in range(0, len(starts), size):
            begins, finishes = np.array(starts[at : at + size]), np.array(ends[at : at + size])
            beginning = event(sequence.begin("op"))
            sequence.slices(begins, finishes, [beginning], np.zeros(len(begins), dtype=np.int64))
        sequence.close()
        packets.flush()
        written.append(events_of(file.getvalue()))
    assert written[0] == written[1] == written[2]
    assert sorted(time for time, kind in written[0] if kind == 1) == starts
    assert sorted(time for time, kind in written[0] if kind == 2) == sorted(ends)
    depth = 0
    for _, kind in written[0]:
        depth += 1 if kind == 1 else -1
        assert depth >= 0
