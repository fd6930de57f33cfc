"""The spool: what a process streams to disk while it records, and its way into tables.

A process appends to `<process>/spool/`; at the end that becomes Parquet and is removed. While it is
there it is the truth, whatever else the directory holds: a conversion that was cut short is simply
done again. The bytes are described in native/layout.h; they are decoded by `_decode`, which needs no torch.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from torchreel.errors import CorruptReelError
from torchreel.reel.tables import INPUTS, OPS, PROCESSES, TABLES
from torchreel.reel.write import ProcessWriter, conform

if TYPE_CHECKING:
    from torchreel._decode import Spool

DIRECTORY = "spool"

# Given the ops of a batch and the table of inputs so far, the ops with their flops.
FlopCounter = Callable[[pa.Table, pa.Table], pa.Table]


def exists(process: Path) -> bool:
    return (process / DIRECTORY).is_dir()


def _open(process: Path) -> Spool:
    from torchreel import _decode

    try:
        return _decode.Spool(str(process / DIRECTORY))
    except _decode.SpoolError as error:
        raise CorruptReelError(f"{process / DIRECTORY} cannot be read: {error}.") from None


def _process_table(decoder: Spool, name: str) -> pa.Table:
    """The one row of `processes`."""
    try:
        said = json.loads(decoder.process)
    except ValueError:
        said = {}
    row: dict[str, Any] = {
        **(said if isinstance(said, dict) else {}),
        "name": name,
        "start_ns": decoder.start_ns,
        "end_ns": decoder.end_ns,
        "complete": decoder.closed,
        "lost_events": decoder.lost_events,
        "node": decoder.node if decoder.node >= 0 else None,
    }
    try:
        return pa.Table.from_pylist([{key: row.get(key) for key in PROCESSES.names}], schema=PROCESSES.schema)
    except (pa.ArrowException, OverflowError, TypeError):
        raise CorruptReelError(f"What the process {name} says about itself makes no sense: {said}.") from None


def _batches(decoder: Spool, process: Path) -> Iterator[tuple[str, pa.Table]]:
    """All rows of all tables, as they are decoded."""
    from torchreel import _decode

    try:
        while (batch := decoder.next()) is not None:
            for name, columns in batch.items():
                yield name, conform(TABLES[name], pa.record_batch(columns))
        for name, columns in decoder.finish().items():
            yield name, conform(TABLES[name], pa.record_batch(columns))
    except _decode.SpoolError as error:
        raise CorruptReelError(f"{process / DIRECTORY} cannot be read: {error}.") from None
    yield PROCESSES.name, _process_table(decoder, process.name)


def read(process: Path) -> dict[str, pa.Table]:
    """Decode a whole spool into tables, in memory."""
    batches: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for name, table in _batches(_open(process), process):
        batches[name].append(table)
    return {
        name: pa.concat_tables(parts).unify_dictionaries() if parts else TABLES[name].schema.empty_table()
        for name, parts in batches.items()
    }


def convert(process: Path, flop_counter: FlopCounter | None = None) -> None:
    """Turn a spool into Parquet files, batch by batch, and remove it."""
    decoder = _open(process)
    with ProcessWriter(process) as writer:
        for name, table in _batches(decoder, process):
            if name == OPS.name and flop_counter is not None:
                table = flop_counter(table, conform(INPUTS, pa.record_batch(decoder.inputs())))
            writer.write(name, table)
    done = process / f".{DIRECTORY}"
    (process / DIRECTORY).rename(done)
    shutil.rmtree(done)
