"""What a run spent in the files of an atlas."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import torchreel
from tests.analyze.source.test_line_ops import hostile
from tests.analyze.source.test_lines import random_reel
from tests.analyze.source.test_regions import FILES, random_calls
from tests.analyze.source.test_regions import expected as spent
from tests.synthetic import Call, Process, call, write_reel
from torchreel.analyze.source.lines import lines
from torchreel.atlas.costs import NO_STACKS, RunCosts
from torchreel.atlas.model import Costs, LineOp
from torchreel.atlas.tables import TABLES

TRAIN = ("/home/me/train.py", 10, "main")
MODEL = ("/home/me/model.py", 5, "Net.forward")
LINKED = ("/link/model.py", 5, "Net.forward")
LINEAR = ("/env/torch/nn/linear.py", 134, "Linear.forward")
RELATIVE = ("model.py", 5, "Net.forward")
IDS = {"/home/me/train.py": 0, "/home/me/model.py": 1, "/link/model.py": 1, "/home/me/idle.py": 2, "/home/me/a.cpp": 3}
SYMBOLS = [
    # id, file, kind, line, end_line, declaration
    (100, 0, "function", 8, 12, False),
    (101, 1, "class", 1, 9, False),
    (102, 1, "method", 4, 6, False),
    (103, 1, "variable", 5, 5, False),
    (104, 1, "function", 5, 5, True),
    (105, 2, "function", 1, 3, False),
    (106, 3, "function", 31, 40, False),
]


def symbols_of(rows: list[tuple[int, int, str, int, int, bool]]) -> pa.Table:
    names = ("id", "file", "kind", "line", "end_line", "declaration")
    types = (pa.int64(), pa.int32(), pa.dictionary(pa.int32(), pa.string()), pa.int32(), pa.int32(), pa.bool_())
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=names)


NOTHING = Costs(total_backward_ns=0)


def costs(
    calls: int, forward: int, backward: int, total: int, of_total: int, alloc: int = 0, flops: int | None = None
) -> Costs:
    """`of_total` is the backward part of the total."""
    return Costs(calls, forward + backward, forward, backward, total, alloc, flops, of_total)


def reel_of(path: Path, calls: list[Call], **fields: Any) -> torchreel.Reel:
    return torchreel.load(write_reel(path, Process({"main": calls}, **fields)))


@pytest.fixture
def found(tmp_path: Path) -> RunCosts:
    stack = (LINEAR, MODEL, TRAIN)
    calls = [
        call("aten::mm", 30, flops=24, bytes=8, stack=stack),
        call("MmBackward0", 1, call("aten::mm", 50, stack=stack), kind="backward", stack=stack),
        call("aten::add", 7, overload="Tensor", bytes=-8, stack=(MODEL, TRAIN)),
        # The same file under both of its paths, in one stack.
        call("aten::mul", 100, stack=(LINKED, MODEL, TRAIN)),
        call("aten::sub", 1_000, stack=(RELATIVE, ("<string>", 1, "<module>"))),
    ]
    folders = {"me": [0, 1, 2], "empty": [2], "nothing": []}
    return RunCosts(reel_of(tmp_path / "run.reel", calls), IDS, symbols_of(SYMBOLS), folders)


def test_files_folders_and_the_rest(found: RunCosts) -> None:
    assert found.recorded and found.problem == ""
    assert found.files == {0: costs(0, 0, 0, 188, 51), 1: costs(2, 107, 0, 188, 51)}
    assert [found.of_file(file) for file in range(4)] == [found.files[0], found.files[1], NOTHING, None]
    assert found.folders == {"me": costs(2, 107, 0, 188, 51), "empty": NOTHING, "nothing": NOTHING}
    assert found.elsewhere == costs(4, 1_030, 51, 1_081, 51, 8, 24)
    assert found.whole == costs(6, 1_137, 51, 1_188, 51, 8, 24)


def test_lines_and_their_ops(found: RunCosts) -> None:
    assert found.of_lines(0) == {10: costs(0, 0, 0, 188, 51)}
    assert found.of_lines(1) == {5: costs(2, 107, 0, 188, 51)}
    assert found.of_lines(2) == {}
    assert found.ops_of(1) == [
        LineOp(5, "aten::mul", "", False, 1, 100, 0, None),
        LineOp(5, "aten::add", "Tensor", False, 1, 7, 0, None),
    ]
    assert found.ops_of(0) == []


def test_symbols(found: RunCosts) -> None:
    # By their place: the variable and the declaration cost nothing that could be told.
    assert found.of_symbols(1, [101, 102, 103, 104]) == {0: costs(2, 107, 0, 188, 51), 1: costs(2, 107, 0, 188, 51)}
    assert found.of_symbols(0, [100]) == {0: costs(0, 0, 0, 188, 51)}
    assert found.of_symbols(2, [105]) == {0: NOTHING}
    assert found.of_symbols(3, [106]) == {}


def test_the_tables(found: RunCosts) -> None:
    rows = [(row["file"], row["path"], row["line"], row["self_ns"]) for row in found.lines.to_pylist()]
    assert rows == [
        (None, "model.py", 5, 1_000),
        (1, "/link/model.py", 5, 100),
        (None, LINEAR[0], 134, 81),
        (1, "/home/me/model.py", 5, 7),
        (None, "<string>", 1, 0),
        (0, "/home/me/train.py", 10, 0),
    ]
    for name in ("lines", "line_ops"):
        table = getattr(found, name)
        assert table.cast(TABLES[name].schema).num_rows == table.num_rows > 0
    files = found.columns_of_files(pa.chunked_array([[0, 1, 2, 3]]))
    assert [column.to_pylist() for column in files.values()] == [
        [0, 2, 0, None],
        [0, 107, 0, None],
        [0, 107, 0, None],
        [0, 0, 0, None],
        [188, 188, 0, None],
        [0, 0, 0, None],
        [None, None, None, None],
        [51, 51, 0, None],
    ]
    symbols = found.columns_of_symbols(pa.chunked_array([[row[0] for row in SYMBOLS]]))
    assert list(symbols) == list(files) == list(Costs.__struct_fields__)
    assert symbols["total_ns"].to_pylist() == [188, 188, 188, None, None, 0, None]


def test_kernels_cost_at_their_definitions(found: RunCosts) -> None:
    kernel, other, both = Costs(1, 5, 5, 0, 5), Costs(1, 2, 2, 0, 2), Costs(2, 7, 7, 0, 7)
    found.add_kernels({(3, 31): kernel, (3, 90): other}, {3: both})
    assert found.of_file(3) == both
    assert found.of_lines(3) == {31: kernel, 90: other}
    assert found.of_symbols(3, [106]) == {0: kernel}
    assert found.columns_of_symbols(pa.chunked_array([[106]]))["self_ns"].to_pylist() == [5]
    assert found.columns_of_symbols(pa.chunked_array([[106]]))["total_backward_ns"].to_pylist() == [None]


def test_states(tmp_path: Path) -> None:
    calls = [call("aten::mm", 1, stack=(MODEL, TRAIN)), call("aten::mm", 1, stack=(LINKED,))]

    def sources(path: str, *hashes: str | None) -> list[dict[str, Any]]:
        return [{"path": path, "bytes": 1, "sha256": sha256} for sha256 in hashes]

    first = Process({"main": calls}, sources=sources(MODEL[0], "aa") + sources("/home/me/named.py", "aa"))
    second = Process({"main": calls}, name="host-2", sources=sources(LINKED[0], "aa") + sources("/elsewhere.py", "aa"))
    ids = {**IDS, "/home/me/named.py": 4, "/home/me/text.py": 5}
    reel = torchreel.load(write_reel(tmp_path / "run.reel", first, second))
    found = RunCosts(reel, ids, symbols_of([]))
    assert [found.state_of(file, "aa") for file in range(6)] == ["unknown", "same", "", "", "same", ""]
    assert found.state_of(1, "bb") == "changed"

    other = Process({"main": calls}, name="host-2", sources=sources(LINKED[0], "bb", None))
    reel = torchreel.load(write_reel(tmp_path / "two.reel", first, other))
    found = RunCosts(reel, ids, symbols_of([]))
    assert [found.state_of(1, sha256) for sha256 in ("aa", "bb")] == ["changed", "changed"]


@pytest.mark.parametrize("calls", [[], [call("aten::mm", 5)]], ids=["no ops", "no stacks"])
def test_without_stacks_there_are_no_costs(tmp_path: Path, calls: list[Call]) -> None:
    found = RunCosts(reel_of(tmp_path / "run.reel", calls), IDS, symbols_of(SYMBOLS), {"me": [0]})
    assert (found.recorded, found.problem) == (False, NO_STACKS)
    assert "torchreel record --stacks" in NO_STACKS
    assert (found.files, found.folders, found.of_lines(0), found.of_symbols(0, [100])) == ({}, {}, {}, {})
    assert found.of_file(0) is None and found.lines.num_rows == found.line_ops.num_rows == 0
    columns = found.columns_of_files(pa.chunked_array([[0]]))
    assert [column.to_pylist() for column in columns.values()] == [[None]] * 8


def test_a_hostile_reel(tmp_path: Path) -> None:
    markup = "<script>alert(1)</script>.py"
    found = RunCosts(hostile(tmp_path / "run.reel"), {markup: 0, "a.py": 1}, symbols_of([]))
    assert found.files == {0: costs(3, 18, 0, 22, 0), 1: costs(1, 4, 0, 4, 0)}
    assert found.of_lines(0) == found.of_lines(1) == {}  # no page has a line -7, or none
    assert found.ops_of(0) == []
    assert found.elsewhere == costs(2, 9, 0, 9, 0)
    assert pc.sum(found.lines["self_ns"]).as_py() == pc.sum(found.line_ops["self_ns"]).as_py() == 31


def test_no_file_that_a_reel_names_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    reel = reel_of(
        tmp_path / "run.reel",
        [call("aten::mm", 1, stack=((str(secret), 1, "f"),))],
        sources=[{"path": str(secret), "bytes": 13, "sha256": "aa"}],
    )
    touched: list[Any] = []
    for module, name in ((os, "open"), (os, "stat"), (os, "lstat"), (builtins, "open")):
        real = getattr(module, name)

        def spy(path: Any, *args: Any, _real: Any = real, **kwargs: Any) -> Any:
            touched.append(path)
            return _real(path, *args, **kwargs)

        monkeypatch.setattr(module, name, spy)
    found = RunCosts(reel, {"/home/me/secret.py": 0}, symbols_of([]))
    monkeypatch.undo()
    assert [path for path in touched if str(path).endswith("secret.py")] == []
    assert found.files == {} and found.lines["file"].to_pylist() == [None]


@pytest.mark.parametrize("seed", range(5))
def test_against_the_definition_call_by_call(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    reel, calls = random_reel(tmp_path / "run.reel", random, random_calls)
    # Two paths of one file, one of another, and one of none.
    ids = {FILES[0]: 7, FILES[1]: 7, FILES[2]: 9}
    rows = [(n, 7 if n % 2 else 9, "function", n, n + n % 6, False) for n in range(1, 40)]
    found = RunCosts(reel, ids, symbols_of(rows), {"both": [7, 9]})

    def of(file: int, begin: int, end: int) -> Costs:
        return Costs(**spent(calls, lambda path, line: ids.get(path) == file and begin <= line <= end))

    for file in (7, 9):
        assert found.of_file(file) == of(file, 0, 99)
        assert found.of_lines(file) == {
            line: each for line in range(100) if (each := of(file, line, line)).total_ns or line in found.of_lines(file)
        }
    for symbol, file, _, begin, end, _ in rows:
        assert found.of_symbols(file, [symbol]) == {0: of(file, begin, end)}
    assert found.folders["both"] == Costs(**spent(calls, lambda path, line: path in ids))
    assert found.elsewhere == Costs(**spent(calls, lambda path, line: path not in ids))
    assert found.whole == Costs(**spent(calls, lambda path, line: True))


@pytest.mark.programs
def test_the_sums_of_a_recorded_run(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with torchreel.record(tmp_path / "run.reel", stacks=True, memory=True, flops=True, shapes=True):
        model(torch.randn(8, 16)).sum().backward()
    reel = torchreel.load(tmp_path / "run.reel")
    ids = {__file__: 0, torch.nn.modules.linear.__file__: 1, torch.nn.functional.__file__: 2}
    found = RunCosts(reel, ids, symbols_of([]))
    (asked,) = reel.sql(
        "select count(*) as calls, sum(self_ns)::bigint as self_ns, sum(flops)::bigint as flops,"
        " sum(greatest(self_alloc_bytes, 0))::bigint as alloc_bytes from ops where stack is not null"
    ).to_pylist()
    assert {name: getattr(found.whole, name) for name in asked} == asked
    parts = [*found.files.values(), found.elsewhere]
    assert sum(each.self_ns for each in parts) == asked["self_ns"]
    assert sum(each.calls for each in parts) == asked["calls"]
    assert found.files[0].total_ns == asked["self_ns"]  # all was called from here
    assert found.files[1].backward_ns > 0
    # The lines of the pages are those of the viewer.
    rows = {(row["file"], row["line"]): row for row in lines(reel).to_pylist()}
    for path, file in ids.items():
        for line, each in found.of_lines(file).items():
            assert {name: getattr(each, name) for name in Costs.__struct_fields__}.items() <= rows[path, line].items()
