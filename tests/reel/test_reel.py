"""A reel on disk: opening it, its tables, and what is said of a damaged one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import torch

import torchreel
from tests.synthetic import Process, call, write_reel
from torchreel.errors import (
    CorruptReelError,
    NewerReelError,
    NotAReelError,
    OptionError,
    QueryError,
    TruncatedReelError,
)
from torchreel.reel.tables import TABLES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with torchreel.record(tmp_path / "a.reel", shapes=True, memory=True, stacks=True, modules=True):
        torch.nn.Linear(3, 3)(torch.ones(2, 3)).sum().backward()
    return tmp_path / "a.reel"


def only_part(path: Path) -> Path:
    (part,) = (entry for entry in path.iterdir() if entry.is_dir())
    return part


def test_every_table_has_the_columns_of_its_definition(path: Path) -> None:
    reel = torchreel.load(path)
    for name, definition in TABLES.items():
        table = getattr(reel, name)
        assert isinstance(table, pa.Table)
        assert table.schema.names == ["process", *definition.names]
        assert [table.schema.field(column.name).type for column in definition.columns] == [
            column.type for column in definition.columns
        ]
        table.validate(full=True)


def test_the_files_are_plain_parquet_that_any_tool_reads(path: Path) -> None:
    import duckdb

    count = duckdb.sql(f"select count(*) from read_parquet('{only_part(path)}/ops.parquet')").fetchall()
    assert count == [(torchreel.load(path).ops.num_rows,)]
    assert json.loads((path / "meta.json").read_text())["format"] == 7


def test_sql_sees_every_table(path: Path) -> None:
    reel = torchreel.load(path)
    for name in TABLES:
        assert reel.sql(f"select count(*) as n from {name}").to_pylist() == [{"n": getattr(reel, name).num_rows}]


def test_one_column_is_read_alone(path: Path) -> None:
    table = torchreel.load(path).table("ops", columns=["name", "dur_ns"])
    assert table.column_names == ["process", "name", "dur_ns"]
    with pytest.raises(OptionError, match="no column 'colour'"):
        torchreel.load(path).table("ops", columns=["colour"])
    with pytest.raises(OptionError, match="no table 'cats'"):
        torchreel.load(path).table("cats")


def test_loading_needs_no_torch(path: Path) -> None:
    script = """
import sys
sys.modules["torch"] = None
import torchreel
reel = torchreel.load(sys.argv[1])
assert reel.sql("select count(*) as n from ops").to_pylist()[0]["n"] > 5
assert torchreel.averages(reel).num_rows > 3
try:
    torchreel.record("x")
except torchreel.errors.UnavailableError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "needs torch 2.13.0" in result.stdout


def test_a_wrong_query_is_a_sentence(path: Path) -> None:
    with pytest.raises(QueryError, match=r"The query failed: .*nonsense"):
        torchreel.load(path).sql("select nonsense from ops")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(NotAReelError, match="There is no reel at"):
        torchreel.load(tmp_path / "missing.reel")


def test_foreign_directories_and_files(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(NotAReelError, match="not a reel"):
        torchreel.load(tmp_path / "other")
    (tmp_path / "trace.json").write_text("{}")
    with pytest.raises(NotAReelError, match="torchreel import"):
        torchreel.load(tmp_path / "trace.json")
    (tmp_path / "other" / "meta.json").write_text('{"name": "somebody else"}')
    with pytest.raises(NotAReelError, match="another tool"):
        torchreel.load(tmp_path / "other")


def test_a_reel_of_format_1_opens() -> None:
    reel = torchreel.load(Path(__file__).parent / "data" / "v1.reel")
    assert reel.meta["format"] == 7
    assert reel.allocs.num_rows > 0 and reel.allocs["stream"].null_count == reel.allocs.num_rows
    assert reel.segments.num_rows == reel.devices.num_rows == 0
    assert reel.sql("select count(*) as n from ops where kind = 'range'")["n"].to_pylist() == [4]


def test_a_reel_of_format_2_opens() -> None:
    reel = torchreel.load(Path(__file__).parent / "data" / "v2.reel")
    assert (reel.meta["format"], reel.meta["written_format"]) == (7, 2)
    assert reel.tape_ops.num_rows == 0 and reel.steps.num_rows == 4
    assert reel.sql("select count(*) as n from tape_ops")["n"].to_pylist() == [0]
    assert reel.sql("select count(*) as n from ops where kind = 'range' and name = 'step'")["n"].to_pylist() == [3]


def test_a_reel_that_is_removed_while_it_is_open(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent / "data" / "v3.reel", tmp_path / "x.reel")
    reel = torchreel.load(tmp_path / "x.reel")
    shutil.rmtree(tmp_path / "x.reel")
    with pytest.raises(NotAReelError, match="is gone since the reel was opened"):
        reel.table("ops")


def test_a_reel_of_format_3_opens() -> None:
    reel = torchreel.load(Path(__file__).parent / "data" / "v3.reel")
    assert (reel.meta["format"], reel.meta["written_format"]) == (7, 3)
    assert reel.ops.num_rows > 0 and reel.ops["backend"].null_count == reel.ops.num_rows
    known = reel.sql("select count(reserved) as n from allocs")
    assert known["n"].to_pylist() == [0] and reel.allocs.num_rows > 0


def test_a_reel_of_format_4_opens() -> None:
    reel = torchreel.load(Path(__file__).parent / "data" / "v4.reel")
    assert (reel.meta["format"], reel.meta["written_format"]) == (7, 4)
    named = reel.sql("select name, backend, debug_handle from ops where backend is not null")
    assert set(zip(*named.to_pydict().values(), strict=True)) == {("DELEGATE_CALL", "xnnpack", 7)}
    unknown = [reel.ops["record_id"], reel.ops["script_modules"], reel.inputs["keywords"], reel.processes["local_rank"]]
    assert all(column.null_count == len(column) > 0 for column in unknown)


def test_a_reel_of_format_5_opens() -> None:
    reel = torchreel.load(Path(__file__).parent / "data" / "v5.reel")
    assert (reel.meta["format"], reel.meta["written_format"]) == (7, 5)
    assert reel.frames.num_rows == 2 and reel.sources.num_rows == 0
    assert reel.sources.column_names == ["process", "path", "bytes", "sha256", "text"]
    joined = reel.sql("select f.line, s.text from frames f left join sources s on s.path = f.file order by f.line")
    assert joined.to_pylist() == [{"line": 3, "text": None}, {"line": 12, "text": None}]


def test_a_reel_of_format_6_opens() -> None:
    reel = torchreel.load(Path(__file__).parent / "data" / "v6.reel")
    assert (reel.meta["format"], reel.meta["written_format"]) == (7, 6)
    columns = "k.name, o.name as op, k.kind, k.launch, k.grid"
    known = reel.sql(f"select {columns} from kernels k left join ops o on k.op = o.id order by k.id")
    assert known.to_pylist() == [
        {"name": "gemm", "op": "aten::mm", "kind": None, "launch": None, "grid": None},
        {"name": "Memcpy DtoH", "op": None, "kind": None, "launch": None, "grid": None},
    ]
    assert reel.devices["model"].to_pylist() == [None] and reel.ops["args"].null_count == 2
    assert reel.collectives.num_rows == reel.syncs.num_rows == reel.process_groups.num_rows == 0


def test_a_newer_format_is_refused(path: Path) -> None:
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps({**meta, "format": 99}))
    with pytest.raises(NewerReelError, match=r"format version 99 .* up to 7"):
        torchreel.load(path)


@pytest.mark.parametrize(
    ("text", "error"),
    [("", TruncatedReelError), ('{"format": 1, "op', TruncatedReelError), ("{]}", CorruptReelError)],
)
def test_a_damaged_meta(path: Path, text: str, error: type[Exception]) -> None:
    (path / "meta.json").write_text(text)
    with pytest.raises(error, match=r"meta\.json"):
        torchreel.load(path)


def test_a_truncated_table(path: Path) -> None:
    file = only_part(path) / "ops.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(TruncatedReelError, match=r"ops\.parquet ends after"):
        _ = torchreel.load(path).ops
    with pytest.raises(CorruptReelError, match="ops"):
        torchreel.load(path).sql("select * from ops")


def test_a_corrupt_table(path: Path) -> None:
    file = only_part(path) / "ops.parquet"
    bytes_ = bytearray(file.read_bytes())
    bytes_[4 : len(bytes_) - 8] = b"\xff" * (len(bytes_) - 12)
    file.write_bytes(bytes_)
    with pytest.raises(CorruptReelError, match="damaged"):
        _ = torchreel.load(path).ops


def test_reading_changes_nothing(path: Path) -> None:
    def state() -> list[tuple[str, int, bytes]]:
        return sorted(
            (str(file), file.stat().st_mtime_ns, file.read_bytes()) for file in path.rglob("*") if file.is_file()
        )

    before = state()
    reel = torchreel.load(path)
    for name in TABLES:
        getattr(reel, name)
    reel.sql("select * from ops")
    assert state() == before


def test_names_are_helpful(path: Path) -> None:
    reel = torchreel.load(path)
    assert repr(reel) == f"<Reel {str(path)!r}: 1 process>"
    with pytest.raises(AttributeError, match="its tables are ops"):
        _ = reel.opps


def test_a_reel_is_read_after_the_program_went_to_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    write_reel(tmp_path / "a.reel", Process({"main": [call("aten::mm", 100)]}))
    reel, asked = torchreel.load("a.reel"), torchreel.load("a.reel")
    assert asked.sql("select name from ops").num_rows == 1
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert reel.path == tmp_path / "a.reel"
    assert reel.sql("select name from ops").num_rows == asked.sql("select name from ops").num_rows == 1
    assert reel.ops.num_rows == 1
    monkeypatch.chdir(tmp_path)
    assert reel.path == Path("a.reel")
