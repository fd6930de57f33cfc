"""`torchreel sql`: rows in every format, and the list of tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from torchreel.reel.tables import TABLES

Torchreel = Callable[..., Outcome]

QUERY = "select name, kind, dur_ns, step from ops order by id limit 2"

TABLE = """\
name            kind    dur_ns  step
--------------- ------- ------- ----
step            range    55000     0
nn.Module: Net  module   50000
"""

OUTPUTS = {
    "table": TABLE,
    "csv": "name,kind,dur_ns,step\nstep,range,55000,0\nnn.Module: Net,module,50000,\n",
    "markdown": "| name | kind | dur_ns | step |\n| --- | --- | ---: | ---: |\n| step | range | 55000 | 0 |\n"
    "| nn.Module: Net | module | 50000 |  |\n",
}


@pytest.mark.parametrize("form", OUTPUTS)
def test_rows(torchreel: Torchreel, reel: Path, form: str) -> None:
    outcome = torchreel("sql", "run.reel", QUERY, "--format", form)
    assert (outcome.code, outcome.out) == (0, OUTPUTS[form])


def test_json_rows(torchreel: Torchreel, reel: Path) -> None:
    assert json.loads(torchreel("sql", "run.reel", QUERY, "--format", "json").out) == {
        "columns": ["name", "kind", "dur_ns", "step"],
        "rows": [
            {"name": "step", "kind": "range", "dur_ns": 55000, "step": 0},
            {"name": "nn.Module: Net", "kind": "module", "dur_ns": 50000, "step": None},
        ],
    }


def test_json_has_only_values_that_json_knows(torchreel: Torchreel, plain_reel: Path) -> None:
    query = (
        "select sum(dur_ns) a, 1.5::decimal(4,2) b, 'nan'::double c, '\\xAA'::blob d, date '2024-01-02' e,"
        " [1, 2] f, {'x': 1} g, 2 a, interval 90 second i from ops"
    )
    result = json.loads(torchreel("sql", "plain.reel", query, "--format", "json").out)
    assert result["columns"] == ["a", "b", "c", "d", "e", "f", "g", "a_2", "i"]
    row = result["rows"][0]
    assert [row[name] for name in "abcdefg"] == [4000, 1.5, None, "aa", "2024-01-02", [1, 2], {"x": 1}]
    assert row["a_2"] == 2


def test_list_of_tables(torchreel: Torchreel, reel: Path) -> None:
    lines = torchreel("sql", "run.reel").out.splitlines()
    assert torchreel("sql", "run.reel", " ").out.splitlines() == lines
    assert lines[0].split() == ["Table", "Rows", "Columns"]
    assert lines[2].split()[:4] == ["ops", "8", "process,", "id,"]
    assert max(len(line) for line in lines) <= 80
    listed = json.loads(torchreel("sql", "run.reel", "--format", "json").out)["tables"]
    assert [table["name"] for table in listed] == list(TABLES)
    assert listed[0]["rows"] == 8
    assert listed[0]["columns"][0] == {
        "name": "id",
        "type": "int64",
        "meaning": "unique in the process; within a thread it grows with start_ns",
    }
    assert torchreel("sql", "run.reel", "--format", "csv").out.startswith('table,rows,columns\nops,8,"process, id,')


def test_statements_without_rows(torchreel: Torchreel, reel: Path) -> None:
    assert torchreel("sql", "run.reel", "copy threads to 'threads.csv'").code == 0
    assert Path("threads.csv").read_text().splitlines()[0] == "process,id,os_id,torch_id,name"
    assert torchreel("sql", "run.reel", "select * from marks").out.splitlines()[0].split() == [
        *("process", "thread", "time_ns", "name", "op"),
    ]


@pytest.mark.parametrize("query", ["selec 1", "select colour from ops", "select * from nowhere", "select 1/'x'"])
def test_a_wrong_query_is_one_sentence(torchreel: Torchreel, reel: Path, query: str) -> None:
    outcome = torchreel("sql", "run.reel", query)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("Error: The query failed: ")
    assert len(outcome.err.splitlines()) == 1


TOO_LARGE = {
    "select 340282366920938463463374607431768211455::uhugeint u": "The column u is a UHUGEINT",
    "select 'infinity'::timestamp t": "The column t has a value that cannot be shown (",
}


@pytest.mark.parametrize("query", TOO_LARGE)
def test_what_cannot_be_shown_right_is_refused(torchreel: Torchreel, reel: Path, query: str) -> None:
    outcome = torchreel("sql", "run.reel", query)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"Error: {TOO_LARGE[query]}")
    assert outcome.err.endswith("cast it, as in x::VARCHAR.\n")
