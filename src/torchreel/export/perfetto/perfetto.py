"""Reel -> Perfetto's own trace format: a fraction of the size of the JSON, and faster to load."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from torchreel.export.output import Progress, Target, writing
from torchreel.export.perfetto.packets import PacketFile, Sequence, event, flow
from torchreel.export.texts import Details, json_text, object_text
from torchreel.export.timeline.kineto import KERNEL_ARGUMENTS, category, kernel_category
from torchreel.export.timeline.timeline import Timeline, runs
from torchreel.export.timeline.tracks import ProcessTrack, Track
from torchreel.reel import Reel

# Values of a column whose fields a sequence remembers: a training loop has few, and has them again and again.
_REMEMBERED = 50_000

_MARKS = "SELECT coalesce(thread, {}) AS owner, name, time_ns FROM own_marks ORDER BY owner, time_ns"
_STEPS = """
SELECT 'step ' || step AS name, start_ns, greatest(end_ns - start_ns, 1) AS dur_ns FROM own_steps
ORDER BY step
"""
_TOTALS = """
SELECT dense_rank() OVER (ORDER BY device) AS owner, device, time_ns, total FROM own_allocs
WHERE total IS NOT NULL ORDER BY owner, time_ns, id
"""

_SAMPLES = """
SELECT dense_rank() OVER (ORDER BY device, name) AS owner, device, name, time_ns, value FROM own_samples
WHERE value IS NOT NULL ORDER BY owner, time_ns
"""

# From a column to the fields that a value of it, if there is one, adds to a slice.
Fields = dict[str, Callable[[Sequence, Any], bytes]]


def write(reel: Reel, target: Target, progress: Progress) -> None:
    """Write the whole reel as one Perfetto trace."""
    with Timeline(reel) as timeline, writing(target, text=False) as file:
        _Writer(timeline, file).write(progress)


class _Writer:
    def __init__(self, timeline: Timeline, file: BinaryIO) -> None:
        self._timeline = timeline
        self._packets = PacketFile(file)
        self._processes: dict[ProcessTrack, int] = {}
        self._tracks: dict[Track, int] = {}
        self._samplers: dict[tuple[ProcessTrack, str], Sequence] = {}
        self._counters = ["counters"] if timeline.count("counters") else []

    def write(self, progress: Progress) -> None:
        timeline = self._timeline
        total, done = timeline.count("ops"), 0
        for process in timeline.processes:
            timeline.focus(process)
            for track in timeline.tracks(process):
                self._track(track)
            fields = _op_fields(Details(timeline.reel, process.index))
            ops = _Slices(self._sequence, fields)
            for track, batch in timeline.slices("ops", process, [*fields, "arrows", *self._counters]):
                ops.write(track, batch)
                done += batch.num_rows
                progress(done, total)
            ops.close()
            for source, fields in _ON_STREAMS.items():
                slices = _Slices(self._sequence, fields)
                for track, batch in timeline.slices(source, process, [*fields, "arrows"]):
                    slices.write(track, batch)
                slices.close()
            self._samples(process)
            self._marks(process)
            self._steps(process)
            self._totals(process)
        self._packets.flush()

    def _process(self, process: ProcessTrack) -> int:
        if process not in self._processes:
            if process.user is not None:
                uuid = self._packets.child(self._process(process.user), process.label)
            else:
                uuid = self._packets.process(process.pid, process.name, process.label)
            self._processes[process] = uuid
        return self._processes[process]

    def _track(self, track: Track) -> int:
        if track not in self._tracks:
            process = self._process(track.process)
            if track.owner is not None:
                uuid = self._packets.child(self._track(track.owner), track.name)
            elif track.process.user is not None:
                uuid = self._packets.child(process, track.name)
            else:
                uuid = self._packets.thread(process, track.process.pid, track.tid, track.name)
            self._tracks[track] = uuid
        return self._tracks[track]

    def _sequence(self, track: Track, start_ns: int) -> Sequence:
        return self._packets.sequence(self._track(track), start_ns)

    def _marks(self, process: ProcessTrack) -> None:
        for batch in self._timeline.rows(_MARKS.format(self._timeline.home(process))):
            for owner, part in runs(batch, "owner"):
                times = part.column("time_ns").to_pylist()
                sequence = self._sequence(self._timeline.thread(process, owner), times[0])
                for time, name in zip(times, part.column("name").to_pylist(), strict=True):
                    sequence.instant(time, name, "mark")

    def _steps(self, process: ProcessTrack) -> None:
        sequence: Sequence | None = None
        for batch in self._timeline.rows(_STEPS):
            starts = batch.column("start_ns").to_numpy()
            if sequence is None:
                track = self._packets.child(self._process(process), "steps")
                sequence = self._packets.sequence(track, int(starts[0]))
            category = sequence.category("step")
            events = [event(sequence.begin(name) + category) for name in batch.column("name").to_pylist()]
            sequence.slices(starts, starts + batch.column("dur_ns").to_numpy(), events, np.arange(len(events)))
        if sequence is not None:
            sequence.close()

    def _samples(self, process: ProcessTrack) -> None:
        """Counters over time, each on its device or on the process."""
        devices = {track.device: track for track in self._timeline.devices if track.index == process.index}
        for batch in self._timeline.rows(_SAMPLES):
            for _, part in runs(batch, "owner"):
                owner = devices.get(part.column("device")[0].as_py(), process)
                name = part.column("name")[0].as_py()
                key = (owner, name)
                if key not in self._samplers:
                    track = self._packets.counter(self._process(owner), name, of_bytes=False)
                    self._samplers[key] = self._packets.sequence(track, part.column("time_ns")[0].as_py())
                self._samplers[key].values(part.column("time_ns").to_numpy(), part.column("value").to_numpy())

    def _totals(self, process: ProcessTrack) -> None:
        """The bytes allocated on each device, as a counter."""
        tracks: dict[str, int] = {}
        for batch in self._timeline.rows(_TOTALS):
            for _, part in runs(batch, "owner"):
                device = part.column("device")[0].as_py()
                if device not in tracks:
                    tracks[device] = self._packets.counter(self._process(process), f"bytes allocated on {device}")
                times = part.column("time_ns").to_numpy()
                self._packets.sequence(tracks[device], int(times[0])).values(times, part.column("total").to_numpy())


class _Slices:
    """Writes slices track after track, and works out what a value says once for each distinct one."""

    def __init__(self, open_sequence: Callable[[Track, int], Sequence], fields: Fields) -> None:
        self._open_sequence = open_sequence
        self._fields = fields
        self._track: Track | None = None
        self._sequence: Sequence | None = None
        self._known: dict[tuple[str, Any], bytes] = {}

    def write(self, track: Track, batch: pa.RecordBatch) -> None:
        starts = batch.column("start_ns").to_numpy()
        if track is not self._track or self._sequence is None:
            self.close()
            self._track, self._sequence = track, self._open_sequence(track, int(starts[0]))
        sequence = self._sequence
        fields, which = self._distinct(sequence, batch)
        events = [event(each) for each in fields]
        for row, more in self._more(sequence, batch).items():
            events.append(event(fields[which[row]] + more))
            which[row] = len(events) - 1
        sequence.slices(starts, starts + batch.column("dur_ns").to_numpy(), events, which)

    def close(self) -> None:
        """End the last track."""
        if self._sequence is not None:
            self._sequence.close()
        self._track, self._sequence = None, None
        self._known.clear()

    def _distinct(self, sequence: Sequence, batch: pa.RecordBatch) -> tuple[list[bytes], np.ndarray]:
        """The fields of each distinct slice of the batch, and which of them each row has."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        kinds = np.zeros(batch.num_rows, dtype=np.int64)
        first = np.zeros(1, dtype=np.int64)
        columns: list[tuple[list[bytes], np.ndarray]] = []
        for name in self._fields:
            encoded = batch.column(name).dictionary_encode()
            values = encoded.dictionary.to_pylist()
            codes = encoded.indices.fill_null(len(values)).to_numpy()
            columns.append(([*(self._field(sequence, name, value) for value in values), b""], codes))
            _, first, kinds = np.unique(kinds * (len(values) + 1) + codes, return_index=True, return_inverse=True)
        parts = [[fields[code] for code in codes[first].tolist()] for fields, codes in columns]
        return [b"".join(slice) for slice in zip(*parts, strict=True)], kinds

    def _field(self, sequence: Sequence, column: str, value: Any) -> bytes:
        key = (column, value)
        if key not in self._known:
            self._known[key] = self._fields[column](sequence, value)
        return self._known[key]

    def _more(self, sequence: Sequence, batch: pa.RecordBatch) -> dict[int, bytes]:
        """What only some slices have, and each its own: arrows and counters."""
        more: dict[int, bytes] = {}
        rows = np.flatnonzero(batch.column("arrows").is_valid())
        for row, arrows in zip(rows.tolist(), batch.column("arrows").take(rows).to_pylist(), strict=True):
            more[row] = b"".join(flow(arrow) for arrow in arrows)
        if "counters" in batch.schema.names:
            for row, counters in enumerate(batch.column("counters").to_pylist()):
                for counter in counters or ():
                    more[row] = more.get(row, b"") + sequence.count(counter["name"], counter["value"])
        return more


def _op_fields(details: Details) -> Fields:
    """What the columns of an op say, given the tables that their ids refer to."""

    def inputs(sequence: Sequence, id: int) -> bytes:
        return b"".join(sequence.annotation(name, text) for name, text in details.inputs(id).items())

    def module(sequence: Sequence, id: int) -> bytes:
        path = details.module(id)
        return b"" if path is None else sequence.annotation("Module Hierarchy", path)

    return {
        "name": lambda sequence, name: sequence.begin(name),
        "kind": lambda sequence, kind: sequence.category(category(kind)),
        "inputs": inputs,
        "stack": lambda sequence, id: sequence.annotation("Call stack", ";".join(details.frames(id))),
        "module": module,
        "flops": lambda sequence, flops: sequence.count("FLOPs", flops),
        "args": _arguments,
    }


def _arguments(sequence: Sequence, text: str) -> bytes:
    """What an imported trace said beyond our columns."""
    return b"".join(
        sequence.annotation(name, value if isinstance(value, str) else json_text(value))
        for name, value in json.loads(object_text(text)).items()
    )


def _annotation(name: str) -> Callable[[Sequence, Any], bytes]:
    return lambda sequence, value: sequence.annotation(name, value if isinstance(value, str) else json_text(value))


_ON_STREAMS: dict[str, Fields] = {
    "kernels": {
        "name": lambda sequence, name: sequence.begin(name) + sequence.category(kernel_category(name)),
        "device": _annotation("device"),
        **{column: _annotation(name) for name, column in KERNEL_ARGUMENTS.items()},
        "args": _arguments,
    },
    "device_ranges": {
        "name": lambda sequence, name: sequence.begin(name) + sequence.category("gpu_user_annotation"),
    },
    "syncs": {
        "name": lambda sequence, name: sequence.begin(name) + sequence.category("cuda_sync"),
        "wait_on_stream": _annotation("wait_on_stream"),
        "wait_on_event": _annotation("wait_on_cuda_event_id"),
    },
}
