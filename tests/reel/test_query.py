"""SQL over reels of many processes: the same rows as the tables have, for a cost that is linear."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import torchreel
from tests.alone import run_forked
from tests.synthetic import Process, call, write_reel
from torchreel.analyze import summary
from torchreel.errors import NotAReelError, QueryError
from torchreel.reel import query
from torchreel.reel.tables import TABLES

pytestmark = pytest.mark.programs

MANY = 1024


def copies(path: Path, count: int, **first: Any) -> Path:
    """A reel of processes that all have the files of the first, each under a name of its own."""
    whole = Process({"main": [call("aten::mm", 100, call("aten::add", 10)) for _ in range(3)]}, **first)
    write_reel(path, whole)
    for number in range(1, count):
        directory = path / f"host-{number + 1}"
        directory.mkdir()
        for file in (path / whole.name).iterdir():
            os.link(file, directory / file.name)
    return path


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())


def assert_sql_is_table(reel: torchreel.Reel) -> None:
    for name, definition in TABLES.items():
        found = reel.sql(f"select * from {name}")
        assert found.column_names == ["process", *definition.names]
        assert found.schema.field("process").type == pa.int32()
        assert sorted_rows(found) == sorted_rows(reel.table(name)), name


def union_of_all(reel: torchreel.Reel, name: str) -> pa.Table:
    """What a table is by definition: the files of all processes, one after the other."""
    columns = ", ".join(f'"{column}"' for column in TABLES[name].names)
    files = [(part.index, part.directory / f"{name}.parquet") for part in reel.parts]
    selects = [f"SELECT {index} AS process, {columns} FROM read_parquet('{f}')" for index, f in files if f.exists()]
    return duckdb.connect().sql(" UNION ALL ".join(selects)).to_arrow_table() if selects else None


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real reel of a process and three children."""
    path = tmp_path_factory.mktemp("several") / "run.reel"
    script = """
import multiprocessing, sys, torch, torchreel
def work(count):
    for _ in range(count):
        with torchreel.range("work"):
            torch.ones(3, 3).mm(torch.ones(3, 3)).sum()
if __name__ == "__main__":
    with torchreel.record(sys.argv[1], shapes=True, memory=True, stacks=True):
        work(2)
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(count,)) for count in (1, 3, 5)]
        for child in children: child.start()
        for child in children: child.join()
"""
    file = path.parent / "script.py"
    file.write_text(script)
    subprocess.run([sys.executable, file, path], check=True)
    return path


def test_several_processes_are_what_their_files_hold(several: Path) -> None:
    reel = torchreel.load(several)
    assert len(reel.parts) == 4
    assert_sql_is_table(reel)
    for name in TABLES:
        expected = union_of_all(reel, name)
        found = reel.sql(f"select * from {name}")
        assert found.num_rows == (0 if expected is None else expected.num_rows)
        if expected is not None:
            assert sorted_rows(found) == sorted_rows(expected)
            assert found.schema.types[1:] == expected.schema.types[1:]


def test_a_table_that_only_some_processes_have(tmp_path: Path) -> None:
    plain = Process({"main": [call("aten::mm", 1)]}, name="host-1")
    memory = Process({"main": [call("aten::mm", 1)]}, name="host-2", pid=2, allocs=[("alloc", 8), ("free", 8)])
    reel = torchreel.load(write_reel(tmp_path / "x.reel", plain, memory))
    assert reel.sql("select process, count(*) n from allocs group by 1").to_pylist() == [{"process": 1, "n": 2}]
    assert_sql_is_table(reel)


def test_a_column_that_only_some_files_have(tmp_path: Path) -> None:
    path = copies(tmp_path / "x.reel", 3)
    file = path / "host-2" / "ops.parquet"
    older = pq.read_table(file).drop_columns(["backend", "debug_handle"])
    file.unlink()
    pq.write_table(older, file)
    assert_sql_is_table(torchreel.load(path))


def test_columns_that_no_file_has() -> None:
    for version in ("v1", "v2", "v3"):
        assert_sql_is_table(torchreel.load(Path(__file__).parent / "data" / f"{version}.reel"))


def test_no_process_at_all(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "x.reel"))
    assert reel.sql("select count(*) n from ops").to_pylist() == [{"n": 0}]
    assert_sql_is_table(reel)


@pytest.mark.parametrize(
    "name",
    [
        "it's",
        "a[1]b",
        "star*",
        "what?",
        "[",
        "]",
        "{a,b}",
        "id=7",
        "new\nline",
        'say "hi"',
        "~",
        "%20",
        "back\\slash",
        "ü",
    ],
)
def test_paths_that_look_like_something_else(tmp_path: Path, name: str) -> None:
    # Beside each lies what a pattern would match in its place.
    copies(tmp_path / "a1b" / "x.reel", 3)
    path = copies(tmp_path / name / f"{name}.reel", 2, name=f"{name}-1")
    reel = torchreel.load(path)
    assert reel.sql("select count(*) n from ops").to_pylist() == [{"n": 12}]
    assert_sql_is_table(reel)


def test_a_path_that_has_no_utf_8(tmp_path: Path) -> None:
    path = copies(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.reel")), 2)
    assert_sql_is_table(torchreel.load(path))


def test_a_relative_path_while_the_program_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies(tmp_path / "x.reel", 2)
    monkeypatch.chdir(tmp_path)
    reel = torchreel.load("x.reel")
    assert reel.sql("select count(*) n from ops")["n"].to_pylist() == [12]
    monkeypatch.chdir("/")
    assert reel.sql("select count(*) n from ops")["n"].to_pylist() == [12]


def test_what_is_recorded_and_what_is_closed_together(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "x.reel") as recorder:
        torch.ones(2).add(1)
        closed = Process({"main": [call("aten::mm", 1)]}, name="host-1")
        from torchreel.reel.write import write_process

        write_process(tmp_path / "x.reel" / "host-1", closed.tables())
        torchreel.mark("here")
        reel = recorder.peek()
    names = reel.sql("select process, name from ops where name in ('aten::mm', 'aten::add') order by name").to_pylist()
    assert names == [{"process": 0, "name": "aten::add"}, {"process": 1, "name": "aten::mm"}]
    assert reel.sql("select count(*) n from marks")["n"].to_pylist() == [1]


class Counting:
    """Counts the statements, and the bytes of their texts, that DuckDB is given for a reel."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, texts: list[str]) -> None:
        self._connection = connection
        self._texts = texts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._connection, name)
        if name not in ("execute", "sql"):
            return method

        def counted(text: str, *args: Any) -> Any:
            self._texts.append(text)
            return method(text, *args)

        return counted


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []
    make = query._connection
    monkeypatch.setattr(query, "_connection", lambda: Counting(make(), texts))
    return texts


def test_one_scan_for_1024_processes(tmp_path: Path, statements: list[str]) -> None:
    reel = torchreel.load(copies(tmp_path / "x.reel", MANY))
    assert reel.sql("select count(*) n, count(distinct process) p from ops").to_pylist() == [{"n": 6 * MANY, "p": MANY}]
    assert sum(text.count("read_parquet") for text in statements) == 1
    assert not any("UNION ALL" in text for text in statements)
    plan = reel.sql("explain select count(*) from ops")["explain_value"].to_pylist()[0]
    assert plan.count("READ_PARQUET") == 1
    assert reel.sql("select count(*) n from ops where process = 1000")["n"].to_pylist() == [6]
    assert torchreel.averages(reel)["calls"].to_pylist() == [3 * MANY, 3 * MANY]
    assert summary(reel).processes == MANY
    assert reel.table("processes").num_rows == MANY


def test_a_statement_opens_only_the_tables_that_it_names(tmp_path: Path, statements: list[str]) -> None:
    reel = torchreel.load(copies(tmp_path / "x.reel", 3))
    reel.sql("select count(*) from ops")
    views = [text for text in statements if "VIEW" in text]
    assert len(views) == 1
    reel.sql("select max(dur_ns) from Ops")
    assert [text for text in statements if "VIEW" in text] == views  # the connection is kept, with what it opened
    reel.sql("select * from threads join processes using (process)")
    assert len([text for text in statements if "VIEW" in text]) == 3


def test_all_tables_are_listed(tmp_path: Path) -> None:
    reel = torchreel.load(copies(tmp_path / "x.reel", 2))
    assert set(TABLES) <= set(reel.sql("show tables")["name"].to_pylist())
    assert reel.sql("describe ops")["column_name"].to_pylist() == ["process", *TABLES["ops"].names]
    assert reel.sql("from query('select count(*) n from op' || 's')")["n"].to_pylist() == [12]


def test_nothing_is_left_behind_by_a_statement(tmp_path: Path) -> None:
    reel = torchreel.load(copies(tmp_path / "x.reel", 2))
    assert reel.sql("create table mine as select * from ops; select count(*) n from mine")["n"].to_pylist() == [12]
    with pytest.raises(QueryError, match="mine"):
        reel.sql("select * from mine")
    for statement in ("drop view ops", "create or replace view ops as select 1", "set threads = 1", "use files"):
        reel.sql(f"select 1 from ops; {statement}")
        assert reel.sql("select count(*) n from ops")["n"].to_pylist() == [12]
    reel.sql(f"copy ops to '{tmp_path}/ops.parquet'")
    assert pq.read_table(tmp_path / "ops.parquet").num_rows == 12


@pytest.mark.parametrize("name", ["cats", "reel", "query", "connection", "TABLES", "self", "named", "pa"])
def test_unknown_tables_are_a_sentence(tmp_path: Path, name: str) -> None:
    reel = torchreel.load(copies(tmp_path / "x.reel", 2))
    with pytest.raises(QueryError, match=rf"Table with name {name} does not exist.*The tables are ops, marks"):
        reel.sql(f"select * from {name}")


def test_a_word_that_is_no_table_here(tmp_path: Path) -> None:
    path = copies(tmp_path / "x.reel", 2)
    (path / "host-2" / "threads.parquet").unlink()
    (path / "host-2" / "threads.parquet").mkdir()
    reel = torchreel.load(path)
    assert reel.sql("select count(*) as threads from ops")["threads"].to_pylist() == [12]
    assert reel.sql("with threads as (select 5 as n) select n from threads")["n"].to_pylist() == [5]


def test_files_that_go_away_between_two_statements(tmp_path: Path) -> None:
    path = copies(tmp_path / "x.reel", 2)
    reel = torchreel.load(path)
    reel.sql("select * from ops")
    (path / "host-2" / "ops.parquet").unlink()
    with pytest.raises(NotAReelError, match="gone"):
        reel.sql("select sum(dur_ns) from ops")


def test_many_threads_at_once(tmp_path: Path) -> None:
    reel = torchreel.load(copies(tmp_path / "x.reel", 5))
    found: list[Any] = []

    def ask(number: int) -> None:
        table = reel.sql(f"select {number} as k, count(*) as n from {('ops', 'threads')[number % 2]}")
        found.append(table.to_pylist()[0])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((row["k"], row["n"]) for row in found) == [(k, (30, 5)[k % 2]) for k in range(16)]


def test_a_forked_child_asks_too_and_ends(tmp_path: Path) -> None:
    copies(tmp_path / "x.reel", 3)
    script = """
import os, sys, torchreel
reel = torchreel.load(sys.argv[1])
count = lambda: reel.sql("select count(*) n from ops")["n"].to_pylist()[0]
assert count() == 18
child = os.fork()
assert count() == 18
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script, tmp_path / "x.reel"], check=True, timeout=120)


def test_every_type_of_a_column_has_one_in_sql() -> None:
    assert {column.type for table in TABLES.values() for column in table.columns} <= set(query._TYPES)


def test_an_export_opens_the_files_of_a_process_a_fixed_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done for one process does not grow with how many there are."""
    from torchreel.export import export
    from torchreel.export.timeline import timeline

    narrowed: list[int] = []

    def counted(connection: Any, reel: Any, process: int, tables: Any) -> None:
        narrowed.append(process)
        query.narrow(connection, reel, process, tables)

    monkeypatch.setattr(timeline, "narrow", counted)
    for count in (3, 12):
        narrowed.clear()
        reel = torchreel.load(copies(tmp_path / f"{count}.reel", count))
        export(reel, tmp_path / f"{count}.json", "chrome")
        assert sorted(set(narrowed)) == list(range(count)) and len(narrowed) <= 3 * count
        events = json.loads((tmp_path / f"{count}.json").read_text())["traceEvents"]
        assert sum(event["name"] == "aten::mm" for event in events) == 3 * count


def test_nothing_is_said_when_a_program_ends_and_a_reel_is_never_let_go_of(tmp_path: Path) -> None:
    reel = copies(tmp_path / "a.reel", 1)
    script = """
import ctypes, sys, torchreel
reel = torchreel.load(sys.argv[1])
ctypes.pythonapi.Py_IncRef(ctypes.py_object(reel))
print(reel.sql("select count(*) as n from ops").to_pylist())
"""
    result = run_forked(script, reel)
    assert (result.stdout, result.stderr) == ("[{'n': 6}]\n", "")
