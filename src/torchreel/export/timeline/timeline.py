"""The timeline of a reel: its tracks, and what is on each of them in the order in which it began.

All formats are written from this. Nothing of the size of the reel is held in memory: DuckDB sorts (and spills to
disk when it must), and the rows come in batches.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.export.timeline.nesting import FIXED, MAIN, PYTHON, RANGE, Nesting, Repairs, Slice, strictly_nested
from torchreel.export.timeline.tracks import (
    Numbers,
    ProcessTrack,
    Track,
    device_track,
    extra_track,
    process_track,
    stream_track,
    thread_track,
)
from torchreel.reel import Reel
from torchreel.reel.query import connect, narrow, unreadable

BATCH_ROWS = 16_384

# What DuckDB raises when a statement is wrong; all else that it raises comes from the files.
_WRONG = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)

# What a timeline shows, and what the head of a file counts.
_TABLES = (
    *("ops", "kernels", "flows", "counters", "marks", "steps", "allocs"),
    *("processes", "threads", "inputs", "stacks", "modules"),
    *("device_ranges", "syncs", "streams", "kernel_counters", "samples", "collectives", "process_groups"),
)

# Those of which the timeline of one process is made.
_OWN = (
    *("ops", "kernels", "counters", "marks", "steps", "allocs", "flows"),
    *("device_ranges", "syncs", "kernel_counters", "samples", "collectives", "process_groups"),
)

# What happens on the streams of devices.
ON_STREAMS = ("kernels", "device_ranges", "syncs")
# Rows beside that of a stream's kernels, and their labels.
_BESIDE = {"device_ranges": "ranges", "syncs": "waits"}

# The tables that become slices, in one form: a stream is to its kernels what a thread is to its calls.
_SLICES = """
CREATE TEMP TABLE used_streams AS
    SELECT u.*, s.name, row_number() OVER (ORDER BY process, device, stream NULLS LAST) AS id
    FROM (SELECT process, device, stream FROM kernels UNION SELECT process, device, stream FROM device_ranges
        UNION SELECT process, device, stream FROM syncs UNION SELECT process, device, stream FROM streams) u
    LEFT JOIN streams s USING (process, device, stream);
CREATE TEMP VIEW slices_of_ops AS
    SELECT o.* REPLACE (coalesce(m.start_ns, o.start_ns) AS start_ns, coalesce(m.dur_ns, o.dur_ns) AS dur_ns),
        coalesce(thread, -1) AS owner
    FROM own_ops o LEFT JOIN moved m ON m.process = o.process AND m.id = o.id;
CREATE TEMP VIEW slices_of_kernels AS
    SELECT k.* EXCLUDE (kind), k.kind AS activity, s.id AS owner, NULL::BIGINT AS parent, 0 AS depth, 'kernel' AS kind,
        false AS "async"
    FROM own_kernels k JOIN used_streams s
        ON s.process = k.process AND s.device = k.device AND s.stream IS NOT DISTINCT FROM k.stream;
CREATE TEMP VIEW slices_of_device_ranges AS
    SELECT r.*, s.id AS owner, row_number() OVER (ORDER BY r.start_ns, r.dur_ns DESC, r.name) AS id,
        NULL::BIGINT AS parent, 0 AS depth, 'range' AS kind, false AS "async"
    FROM own_device_ranges r JOIN used_streams s
        ON s.process = r.process AND s.device = r.device AND s.stream IS NOT DISTINCT FROM r.stream;
CREATE TEMP VIEW slices_of_syncs AS
    SELECT y.* EXCLUDE (kind), y.kind AS name, s.id AS owner,
        row_number() OVER (ORDER BY y.start_ns, y.dur_ns DESC, y.kind) AS id,
        NULL::BIGINT AS parent, 0 AS depth, 'sync' AS kind, false AS "async"
    FROM own_syncs y JOIN used_streams s
        ON s.process = y.process AND s.device = y.device AND s.stream IS NOT DISTINCT FROM y.stream;
"""

_TO_CHECK = """
SELECT owner, start_ns, dur_ns, coalesce(depth, -1) AS depth, coalesce("async", false) AS apart
FROM slices_of_{source} WHERE process = {process} ORDER BY owner, start_ns, id
"""
_TO_NEST = """
SELECT id, coalesce(parent, -1) AS parent, start_ns, dur_ns, coalesce("async", false) AS apart,
    CASE kind WHEN 'range' THEN {RANGE} WHEN 'python' THEN {PYTHON} WHEN 'module' THEN {PYTHON} ELSE {FIXED} END AS kind
FROM slices_of_{source} WHERE process = {process} AND owner = {owner} ORDER BY start_ns, id
"""

# One row per end of an arrow. Several backward calls, one inside the other, have the same forward call: the outermost
# gets the arrow. An end without a call cannot be drawn, and an arrow with one end is none. Kineto numbers arrows to
# backward calls from 1, in the order of these.
_ARROWS = """
CREATE TEMP TABLE arrows AS
WITH backward AS (
    SELECT process, id, parent, fwd, min(id) OVER (PARTITION BY process, fwd) AS first FROM ops WHERE fwd IS NOT NULL
),
pairs AS (
    SELECT b.process, b.fwd, b.first, b.id
    FROM backward b
    JOIN ops f ON f.process = b.process AND f.id = b.fwd
    LEFT JOIN backward p ON p.process = b.process AND p.id = b.parent AND p.fwd = b.fwd
    WHERE p.id IS NULL
),
launches AS (
    SELECT k.process, o.id AS op, k.id FROM kernels k
    JOIN ops o ON o.process = k.process AND o.id = coalesce(k.launch, k.op)
),
ends AS (
    SELECT DISTINCT 'fwdbwd' AS name, process AS scope, first AS key, true AS out, 'ops' AS source, process, fwd AS id
    FROM pairs
    UNION ALL SELECT 'fwdbwd', process, first, false, 'ops', process, id FROM pairs
    UNION ALL SELECT 'ac2g', process, id, true, 'ops', process, op FROM launches
    UNION ALL SELECT 'ac2g', process, id, false, 'kernels', process, id FROM launches
    UNION ALL SELECT name, -1, id, "end" = 'out', 'ops', process, op FROM flows
    WHERE op IS NOT NULL
        AND id IN (SELECT id FROM flows WHERE op IS NOT NULL GROUP BY id HAVING count(DISTINCT "end") = 2)
)
SELECT dense_rank() OVER (ORDER BY name != 'fwdbwd', name, scope, key) AS arrow, name, out, source, process, id
FROM ends
"""

# What a slice can have several of, and how it is found.
_LISTS = {
    "arrows": "LEFT JOIN (SELECT process, id, list(arrow) AS arrows FROM arrows WHERE source = '{source}' "
    "AND process = {process} GROUP BY process, id) a ON a.process = s.process AND a.id = s.id",
    "counters": "LEFT JOIN (SELECT process, op AS id, list({{'name': name, 'value': value}}) AS counters "
    "FROM own_counters GROUP BY process, op) c ON c.process = s.process AND c.id = s.id",
}

_SHOWN = (
    "coalesce(r.lane, 0) AS lane, coalesce(r.start_ns, s.start_ns) AS start_ns, coalesce(r.dur_ns, s.dur_ns) AS dur_ns"
)


class Timeline:
    """Open for the time of one export; closing it frees what DuckDB holds.

    `moved` has the `id`, `start_ns` and `dur_ns` of ops of the first process that are shown at another time.
    """

    def __init__(self, reel: Reel, moved: pa.Table | None = None) -> None:
        self.reel = reel
        self._moved = moved
        self._connection = connect(reel, _TABLES)
        self._spill = tempfile.mkdtemp(prefix="torchreel-export-")
        self._numbers = Numbers()
        self._tracks: dict[tuple[str, int, int, int], Track] = {}
        self.processes: list[ProcessTrack] = []
        self.devices: list[ProcessTrack] = []
        self._homes: dict[int, int] = {}
        self._focused: int | None = None
        try:
            self._prepare()
        except BaseException as error:
            self.close()
            if isinstance(error, duckdb.Error) and not isinstance(error, _WRONG):
                raise unreadable(self.reel, _TABLES, error) from None
            raise

    def _prepare(self) -> None:
        self._connection.execute("SET temp_directory = '" + self._spill.replace("'", "''") + "'")
        self._connection.register("moved", _with_process(self._moved))
        self.processes += [process_track(row, self._numbers) for row in self.reel.process_rows()]
        if not self.processes:
            self._connection.execute("".join(f"CREATE VIEW own_{name} AS FROM {name};" for name in _OWN))
        else:
            self.focus(self.processes[0])
        self._connection.execute(_SLICES)
        self._name_threads()
        self._name_streams()
        for source in ("ops", *ON_STREAMS):
            self._connection.register(f"repairs_of_{source}", self._nest(source))
        self._connection.execute(_ARROWS)

    def __enter__(self) -> Timeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        shutil.rmtree(self._spill, ignore_errors=True)

    def rows(self, query: str) -> Iterator[pa.RecordBatch]:
        """The rows of a query, batch by batch."""
        try:
            yield from self._connection.sql(query).to_arrow_reader(BATCH_ROWS)
        except _WRONG:
            raise
        except (duckdb.Error, pa.ArrowException) as error:
            raise unreadable(self.reel, _TABLES, error) from None

    def focus(self, process: ProcessTrack) -> None:
        """Let `own_ops`, `own_allocs` and so on be the tables of this process: queries about one read these."""
        if self._focused != process.index:
            narrow(self._connection, self.reel, process.index, _OWN)
            self._focused = process.index

    def count(self, table: str) -> int:
        """How many rows a table has, over all processes."""
        (batch,) = self.rows(f"SELECT count(*) AS n FROM {table}")
        return int(batch.column("n")[0].as_py())

    def next_id(self, process: ProcessTrack) -> int:
        """The number after the last id of the process's ops."""
        (batch,) = self.rows(f"SELECT coalesce(max(id), -1) + 1 AS n FROM ops WHERE process = {process.index}")
        return int(batch.column("n")[0].as_py())

    def first_ns(self) -> int:
        """The earliest moment of the reel."""
        (batch,) = self.rows(
            "SELECT coalesce(min(t), 0) AS t FROM (SELECT min(start_ns) AS t FROM ops UNION ALL "
            "SELECT min(start_ns) FROM processes UNION ALL SELECT min(time_ns) FROM allocs)"
        )
        return int(batch.column("t")[0].as_py())

    def last_ns(self) -> int:
        """The last moment of the reel."""
        (batch,) = self.rows(
            "SELECT coalesce(max(t), 0) AS t FROM (SELECT max(start_ns + dur_ns) AS t FROM ops UNION ALL "
            "SELECT max(end_ns) FROM processes UNION ALL SELECT max(time_ns) FROM allocs)"
        )
        return int(batch.column("t")[0].as_py())

    def tracks(self, process: ProcessTrack | None = None) -> list[Track]:
        """The tracks of slices, of one process or of all."""
        return [track for track in self._tracks.values() if process is None or track.process is process]

    def thread(self, process: ProcessTrack, thread: int) -> Track:
        """A thread's own track; a thread that the reel does not name gets one when it is asked for."""
        return self._track("ops", process, thread)

    def home(self, process: ProcessTrack) -> int:
        """The thread to which what has none is given: the main one, or the first."""
        return self._homes.get(process.index, -1)

    def spare(self, process: ProcessTrack, name: str) -> Track:
        """A new track that belongs to no thread."""
        return Track(process, self._numbers.give(None), name)

    def slices(
        self, source: str, process: ProcessTrack, columns: Sequence[str]
    ) -> Iterator[tuple[Track, pa.RecordBatch]]:
        """The rows of `ops` or `kernels` of one process, track by track, each in the order in which they began.

        On a track they are strictly nested: an interval is closed on the left, open on the right and lasts one
        nanosecond at least. `start_ns` and `dur_ns` are the repaired ones. Besides the table's own columns there are
        `arrows`, a list of the arrows that begin or end at the slice, and `counters`, a list of its counters.
        """
        self.focus(process)
        wanted = "".join(f', "{column}"' if column in _LISTS else f', s."{column}"' for column in columns)
        joins = " ".join(
            _LISTS[column].format(source=source, process=process.index) for column in columns if column in _LISTS
        )
        batches = self.rows(
            f"SELECT s.owner, {_SHOWN}, s.id{wanted} FROM slices_of_{source} s {_repairs(source)} {joins} "
            f"WHERE s.process = {process.index} ORDER BY s.owner, lane, start_ns, s.id"
        )
        for batch in batches:
            for owner, lane, part in runs(batch, "owner", "lane"):
                yield self._tracks[source, process.index, owner, lane], part

    def arrow_ends(self, source: str, process: ProcessTrack) -> Iterator[tuple[Track, pa.RecordBatch]]:
        """The ends of arrows at the slices of one process: their number, name, whether they go out, and when."""
        self.focus(process)
        batches = self.rows(
            f"SELECT s.owner, {_SHOWN}, a.arrow, a.name, a.out FROM arrows a JOIN slices_of_{source} s "
            f"USING (process, id) {_repairs(source)} WHERE a.source = '{source}' AND a.process = {process.index} "
            "ORDER BY s.owner, lane, start_ns, a.arrow"
        )
        for batch in batches:
            for owner, lane, part in runs(batch, "owner", "lane"):
                yield self._tracks[source, process.index, owner, lane], part

    def _nest(self, source: str) -> pa.Table:
        """Lay every slice on a lane; returns those that do not stay where the reel has them."""
        parts = []
        for process in self.processes if self.count(source) else ():
            repairs = Repairs()
            self.focus(process)
            for owner in self._owners_to_nest(source, process):
                nesting = Nesting(repairs)
                where = {"source": source, "process": process.index, "owner": owner}
                for batch in self.rows(_TO_NEST.format(**where, RANGE=RANGE, PYTHON=PYTHON, FIXED=FIXED)):
                    _lay(batch, nesting)
                self._open_lanes(source, process, owner, nesting.finish())
            parts.append(repairs.table(process.index))
        return pa.concat_tables(parts) if parts else Repairs().table(0)

    def _owners_to_nest(self, source: str, process: ProcessTrack) -> list[int]:
        """The threads or streams on which not everything can stay as it is: in a sound recording, few or none."""
        found = []
        batches = self.rows(_TO_CHECK.format(source=source, process=process.index))
        parts = ((owner, part) for batch in batches for owner, part in runs(batch, "owner"))
        for owner, group in itertools.groupby(parts, key=lambda pair: pair[0]):
            self._track(source, process, owner)
            table = pa.Table.from_batches([part for _, part in group])
            columns = [table[name].to_numpy() for name in ("start_ns", "dur_ns", "depth")]
            if pc.any(table["apart"]).as_py() or not strictly_nested(*columns):
                found.append(owner)
        return found

    def _open_lanes(self, source: str, process: ProcessTrack, owner: int, labels: list[str]) -> None:
        track = self._track(source, process, owner)
        for lane, label in enumerate(labels, start=1):
            number = labels[:lane].count(label)
            self._tracks[source, process.index, owner, lane] = extra_track(track, label, number, self._numbers)

    def _track(self, source: str, process: ProcessTrack, owner: int) -> Track:
        key = (source, process.index, owner, MAIN)
        if key not in self._tracks and source in _BESIDE:
            stream = self._tracks["kernels", process.index, owner, MAIN]
            self._tracks[key] = extra_track(stream, _BESIDE[source], 1, self._numbers)
        elif key not in self._tracks:
            self._tracks[key] = self.spare(process, f"thread {owner}" if owner >= 0 else "unknown thread")
        return self._tracks[key]

    def _name_threads(self) -> None:
        by_index = {process.index: process for process in self.processes}
        pids = {row["process"]: row["pid"] for row in self.reel.process_rows()}
        for row in self.reel.table("threads").to_pylist():
            process = by_index.get(row["process"])
            if process is not None:
                main = row["os_id"] is not None and row["os_id"] == pids[process.index]
                track = thread_track(process, row, main, self._numbers)
                self._tracks["ops", process.index, row["id"], MAIN] = track
                if main or process.index not in self._homes:
                    self._homes[process.index] = row["id"]

    def _name_streams(self) -> None:
        by_index = {process.index: process for process in self.processes}
        devices: dict[tuple[int, str], ProcessTrack] = {}
        for batch in self.rows("SELECT process, device, stream, name, id FROM used_streams ORDER BY id"):
            for row in batch.to_pylist():
                key = (row["process"], row["device"])
                if key not in devices:
                    devices[key] = device_track(by_index[row["process"]], row["device"], self._numbers)
                    self.devices.append(devices[key])
                track = stream_track(devices[key], row["stream"], row["name"], self._numbers)
                self._tracks["kernels", row["process"], row["id"], MAIN] = track


def _with_process(moved: pa.Table | None) -> pa.Table:
    """The ops that are shown at another time, in the form in which they are joined."""
    if moved is None:
        moved = pa.table({name: pa.array([], pa.int64()) for name in ("id", "start_ns", "dur_ns")})
    return moved.append_column("process", pa.repeat(pa.scalar(0, pa.int32()), moved.num_rows))


def _repairs(source: str) -> str:
    return f"LEFT JOIN repairs_of_{source} r ON r.process = s.process AND r.id = s.id"


def _lay(batch: pa.RecordBatch, nesting: Nesting) -> None:
    names = ("id", "parent", "start_ns", "dur_ns", "kind", "apart")
    columns = [batch.column(name).to_numpy(zero_copy_only=False).tolist() for name in names]
    for id, parent, start, duration, kind, apart in zip(*columns, strict=True):
        nesting.add(Slice(id, parent, start, start + duration, kind), apart)


def runs(batch: pa.RecordBatch, *keys: str) -> Iterator[tuple[Any, ...]]:
    """Cut a sorted batch where a key changes; each part comes after the values of its keys."""
    if batch.num_rows == 0:
        return
    columns = [batch.column(key).to_numpy(zero_copy_only=False) for key in keys]
    changes = np.zeros(batch.num_rows - 1, dtype=bool)
    for column in columns:
        changes |= column[1:] != column[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    for begin, end in itertools.pairwise(edges):
        yield (*(int(column[begin]) for column in columns), batch.slice(begin, end - begin))
