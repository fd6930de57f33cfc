"""A spool, whole, cut short or damaged: it is read as far as it makes sense, or a sentence says why not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import torch

import torchreel
from tests.in_child import in_child
from tests.reel.damaged_spools import read_damaged
from torchreel import _core
from torchreel.errors import CorruptReelError, ReelError
from torchreel.record import RecordOptions, process
from torchreel.reel import spool
from torchreel.reel.tables import TABLES


def record_spool(directory: Path) -> Path:
    """A spool that was never converted."""
    process.begin(directory, RecordOptions(shapes=True, memory=True, stacks=True, modules=True))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    for _ in range(5):
        with torchreel.range("step"):
            model(torch.ones(2, 4)).sum().backward()
    _core.define_step(1)
    torchreel.mark("here")
    process.end()
    return directory


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_spool(tmp_path_factory.mktemp("spool") / "process")


def ops_in(directory: Path) -> pa.Table:
    tables = spool.read(directory)
    for name, table in tables.items():
        table.validate(full=True)
        assert table.schema == TABLES[name].schema
    return tables["ops"]


def test_reading_and_converting_give_the_same_rows(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "p")
    tables = spool.read(whole)
    spool.convert(tmp_path / "p")
    assert not spool.exists(tmp_path / "p")
    import pyarrow.parquet as pq

    for name, table in tables.items():
        file = tmp_path / "p" / f"{name}.parquet"
        assert table.num_rows == (pq.read_table(file).num_rows if file.exists() else 0)
    assert pq.read_table(tmp_path / "p" / "ops.parquet").to_pylist() == tables["ops"].to_pylist()


def test_a_conversion_that_is_cut_short_is_done_again(whole: Path, tmp_path: Path) -> None:
    part = tmp_path / "p"
    shutil.copytree(whole, part)

    def fail(ops: pa.Table, inputs: pa.Table) -> pa.Table:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spool.convert(part, spool.Additions(flops=fail))
    assert spool.exists(part)
    assert not list(part.glob("*.parquet*"))
    spool.convert(part)
    assert (part / "ops.parquet").exists()


def test_events_cut_at_any_byte_are_read_up_to_there(whole: Path, tmp_path: Path) -> None:
    events = (whole / "spool" / "events").read_bytes()
    full = ops_in(whole).num_rows
    counts = []
    for fraction in (0.0, 0.1, 0.35, 0.5, 0.77, 0.99, 1.0):
        part = tmp_path / str(fraction)
        shutil.copytree(whole, part)
        (part / "spool" / "events").write_bytes(events[: 96 + int((len(events) - 96) * fraction)])
        counts.append(ops_in(part).num_rows)
    assert counts == sorted(counts)
    assert counts[0] == 0 and counts[-1] == full


def test_definitions_cut_short(whole: Path, tmp_path: Path) -> None:
    definitions = (whole / "spool" / "definitions").read_bytes()
    for cut in (17, 200, len(definitions) // 2):
        part = tmp_path / str(cut)
        shutil.copytree(whole, part)
        (part / "spool" / "definitions").write_bytes(definitions[:cut])
        assert ops_in(part).num_rows == ops_in(whole).num_rows


@pytest.mark.parametrize("file", ["events", "definitions"])
def test_files_of_another_tool(whole: Path, tmp_path: Path, file: str) -> None:
    part = tmp_path / "p"
    shutil.copytree(whole, part)
    (part / "spool" / file).write_bytes(b"something else entirely" * 100)
    with pytest.raises(CorruptReelError, match=f"{file} are not torchreel's"):
        spool.read(part)
    (part / "spool" / file).unlink()
    with pytest.raises(CorruptReelError, match=f"it has no {file}"):
        spool.read(part)


def test_damage_never_crashes(whole: Path, tmp_path: Path) -> None:
    in_child(read_damaged, whole, tmp_path, range(150))


@pytest.mark.long
def test_much_damage_never_crashes(whole: Path, tmp_path: Path) -> None:
    in_child(read_damaged, whole, tmp_path, range(1000, 11_000))


def rows(tables: dict[str, pa.Table]) -> dict[str, list[object]]:
    return {name: table.to_pylist() for name, table in tables.items()}


def test_a_spool_is_what_it_was_at_the_moment_of_its_extent(whole: Path, tmp_path: Path) -> None:
    events = (whole / "spool" / "events").read_bytes()
    definitions = (whole / "spool" / "definitions").read_bytes()
    part = tmp_path / "p"
    shutil.copytree(whole, part)
    cut = 96 + (len(events) - 96) // 3 // 8 * 8
    (part / "spool" / "events").write_bytes(events[:cut])
    before = rows(spool.read(part))
    assert 0 < len(before["ops"]) < ops_in(whole).num_rows
    extents = [spool.Extent(part, keep=True), spool.Extent(part, keep=False)]
    # It goes on, and its head is written anew: with another end, and closed.
    with (part / "spool" / "events").open("r+b") as file:
        file.write(bytes(reversed(events[:96]))[:48] + events[48:96])
        file.seek(0, 2)
        file.write(events[cut:])
    (part / "spool" / "definitions").write_bytes(definitions + definitions[16:])
    for extent in extents:
        assert rows(spool.read(part, extent)) == before
    shutil.rmtree(part / "spool")
    assert rows(spool.read(part, extents[0])) == before
    with pytest.raises(ReelError, match="was closed, or removed, since the reel was opened"):
        spool.read(part, extents[1])


def test_files_of_a_spool_are_closed_with_its_extent(whole: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    first = descriptors()
    extents = [spool.Extent(whole) for _ in range(5)]
    assert descriptors() == first + 10
    del extents
    assert descriptors() == first
    for _ in range(5):
        spool.read(whole)
    assert descriptors() == first
