"""The spool: what a process streams to disk while it records, and its way into tables.

A process appends to `<process>/spool/`; at the end that becomes Parquet and is removed. While it is
there it is the truth, whatever else the directory holds: a conversion that was cut short is simply
done again. The bytes are described in native/layout.h; they are decoded by `_decode`, which needs no torch.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from torchreel.errors import CorruptReelError
from torchreel.reel.tables import OPS, TABLES
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
        return _decode.Spool(str(process / DIRECTORY), process.name)
    except _decode.SpoolError as error:
        raise CorruptReelError(f"{process / DIRECTORY} cannot be read: {error}.") from None


def read(process: Path) -> dict[str, pa.Table]:
    """Decode a whole spool into tables, in memory."""
    decoder = _open(process)
    batches: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    while (batch := decoder.next()) is not None:
        for name, columns in batch.items():
            batches[name].append(conform(TABLES[name], pa.record_batch(columns)))
    for name, columns in decoder.finish().items():
        batches[name].append(conform(TABLES[name], pa.record_batch(columns)))
    return {
        name: pa.concat_tables(parts).unify_dictionaries() if parts else TABLES[name].schema.empty_table()
        for name, parts in batches.items()
    }


def convert(process: Path, flop_counter: FlopCounter | None = None) -> None:
    """Turn a spool into Parquet files, batch by batch, and remove it."""
    decoder = _open(process)
    with ProcessWriter(process) as writer:
        while (batch := decoder.next()) is not None:
            for name, columns in batch.items():
                table = conform(TABLES[name], pa.record_batch(columns))
                if name == OPS.name and flop_counter is not None:
                    table = flop_counter(table, conform(TABLES["inputs"], pa.record_batch(decoder.inputs())))
                writer.write(name, table)
        for name, columns in decoder.finish().items():
            writer.write(name, pa.record_batch(columns))
    done = process / f".{DIRECTORY}"
    (process / DIRECTORY).rename(done)
    shutil.rmtree(done)
