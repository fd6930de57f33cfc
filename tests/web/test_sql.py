"""SQL of the page: reading the reel's tables, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from torchreel.errors import QueryError
from torchreel.web import sql


@pytest.fixture
def reel(tmp_path: Path) -> torchreel.Reel:
    calls = [call("aten::mm", 5), call("aten::add", 3)]
    return torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))


def test_rows_and_columns(reel: torchreel.Reel) -> None:
    found = sql.run(reel, "select name, self_ns from ops order by self_ns")
    assert (found.columns, found.rows, found.cut) == (["name", "self_ns"], [("aten::add", 3), ("aten::mm", 5)], False)
    assert sql.run(reel, "explain select 1").rows


def test_the_range_is_a_parameter(reel: torchreel.Reel) -> None:
    assert sql.run(reel, "select $end - $begin", {"begin": 3, "end": 10}).rows == [(7,)]


def test_what_is_too_long_is_cut_and_said(reel: torchreel.Reel) -> None:
    found = sql.run(reel, f"select * from range({sql.ROWS + 5})")
    assert len(found.rows) == sql.ROWS and found.cut


TIMES = {
    "timestamptz '2026-01-02 03:04:05+00'": "2026-01-02 03:04:05+00",
    "[timestamptz '2026-01-02 03:04:05+00']": ["2026-01-02 03:04:05+00"],
    "{'at': timetz '12:00:00+02', 'n': 1}": {"at": "12:00:00+02", "n": 1},
    "make_timestamp_ns(1700000000123456789)": "2023-11-14 22:13:20.123456789",
    "date 'infinity'": "infinity",
    "interval 90 second": "00:01:30",
}


@pytest.mark.parametrize(("expression", "shown"), TIMES.items(), ids=TIMES)
def test_times_are_text_and_need_no_pytz(
    reel: torchreel.Reel, monkeypatch: pytest.MonkeyPatch, expression: str, shown: object
) -> None:
    monkeypatch.setitem(sys.modules, "pytz", None)  # it cannot be imported
    found = sql.run(reel, f"select {expression} as at, $begin as at", {"begin": 7})
    assert (found.columns, found.rows) == (["at", "at"], [(shown, 7)])


def test_the_largest_numbers_are_whole(reel: torchreel.Reel) -> None:
    large = 2**128 - 1
    assert sql.run(reel, f"select {large}::uhugeint, [{large}::uhugeint]").rows == [(large, [large])]


def test_rows_that_are_cut_keep_their_order(reel: torchreel.Reel) -> None:
    found = sql.run(reel, "select range::varchar, now() from range(300000) order by range desc")
    assert [row[0] for row in found.rows] == [str(299_999 - n) for n in range(sql.ROWS)]


SECRET = "a file of somebody else's"
REFUSED = {
    "files": "select * from read_text('{secret}')",
    "files as tables": "select * from '{secret}'",
    "files by glob": "select * from glob('/etc/*')",
    "paths that climb out": "select * from read_text('{reel}/../secret.csv')",
    "writing beside the tables": "copy ops to '{reel}/out.parquet'",
    "attaching": "attach '{secret}'",
    "settings": "set enable_external_access = true",
    "extensions": "install httpfs",
    "the network": "select * from read_csv('http://127.0.0.1:1/x.csv')",
    "two statements": "select 1; select 2",
    "variables of Python": "select * from SECRET_ROWS",
    "changing a table": "delete from ops",
    "pivot": "pivot ops on kind using count(*)",
    "a call of a procedure": "call pragma_version()",
    "no statement": "",
    "no SQL": "hello there",
}


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED)
def test_nothing_else_of_the_machine(reel: torchreel.Reel, tmp_path: Path, statement: str) -> None:
    import pyarrow as pa

    SECRET_ROWS = pa.table({"x": [SECRET]})  # noqa: F841, N806
    secret = tmp_path / "secret.csv"
    secret.write_text(SECRET)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(QueryError) as error:
        sql.run(reel, statement.format(secret=secret, reel=reel.path))
    assert SECRET not in str(error.value)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_what_takes_too_long_is_stopped(reel: torchreel.Reel) -> None:
    with pytest.raises(QueryError, match="took longer than"):
        sql.run(reel, "select count(*) from range(1000000000) a, range(1000000000) b", seconds=0.2)
    assert sql.run(reel, "select 1").rows == [(1,)]
