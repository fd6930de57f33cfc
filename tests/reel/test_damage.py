"""Damaged Parquet files: every reader gives rows or a sentence that names the file, and the rest can still be read."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import torchreel
from tests.reel import damage
from tests.synthetic import Process, call, write_reel
from torchreel.cli.main import main
from torchreel.errors import CorruptReelError, TruncatedReelError
from torchreel.reel.tables import TABLES

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reel of two processes whose bytes are the same each time, so that a seed means the same damage."""
    stack = (("model.py", 3, "forward"), ("train.py", 9, "main"))
    processes = []
    for number in (1, 2):
        steps = [
            call(
                "step",
                100,
                call("aten::mm", 50, inputs="[[2, 2], [2, 2]]", module="Net.a", stack=stack, flops=16, bytes=64),
                call("aten::relu", 20 + step, inputs=f"[[{step}]]", module="Net.b", stack=stack[1:], bytes=-64),
                kind="range",
                step=step,
            )
            for step in range(60)
        ]
        allocs = [("alloc", 64), ("alloc", 512), ("free", 64), ("free", 512)] * 50
        sources = [
            {"path": file, "bytes": 5, "sha256": f"{number:064x}", "text": f"# {file}\n"} for file, _, _ in stack
        ]
        threads = {"main": steps, "other": steps[:9]}
        processes.append(Process(threads, name=f"host-{number}", pid=number, allocs=allocs, sources=sources))
    return write_reel(tmp_path_factory.mktemp("whole") / "x.reel", *processes)


def ask_all(whole: Path, work: Path, first: int, count: int, *exports: int) -> None:
    """Try the seeds in a process of its own; all that break a promise are named, a crash with its seed."""
    command = [sys.executable, "-m", "tests.reel.damage", str(whole), str(work), *map(str, (first, count, *exports))]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0, f"at {lines[-1:]}: {result.stderr[-2000:]}"
    assert [line for line in lines if "broken" in line] == []
    assert [line["seed"] for line in lines] == list(range(first, first + count))


@pytest.mark.parametrize("first", [0, pytest.param(6, marks=pytest.mark.long)])
def test_every_reader_says_what_is_damaged(whole: Path, tmp_path: Path, first: int) -> None:
    ask_all(whole, tmp_path, first, 6, 2)  # twelve seeds in all, six of them long: each of the DAMAGES once


@pytest.mark.long
def test_much_damage(whole: Path, tmp_path: Path) -> None:
    ask_all(whole, tmp_path, 1000, 1000)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    processes = [
        Process({"main": [call("aten::mm", 1), call("aten::add", 1)]}, name=f"host-{number}", pid=number)
        for number in (1, 2, 3)
    ]
    return write_reel(tmp_path / "two.reel", *processes)


def test_the_rest_of_a_damaged_reel_is_read(two: Path) -> None:
    file = two / "host-2" / "ops.parquet"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(TruncatedReelError, match=r"host-2/ops\.parquet ends after .* skip_damaged=True"):
        torchreel.load(two).table("ops")
    reel = torchreel.load(two, skip_damaged=True)
    assert reel.table("ops")["process"].unique().to_pylist() == [0, 2]  # the others keep their numbers
    assert reel.sql("select process, count(*) n from ops group by 1 order by 1").to_pylist() == [
        {"process": 0, "n": 2},
        {"process": 2, "n": 2},
    ]
    assert torchreel.averages(reel)["calls"].to_pylist() == [2, 2]
    (sentence,) = reel.left_out
    assert sentence.startswith("Process host-2 is left out: ") and str(file) in sentence
    assert torchreel.load(two / ".." / "two.reel").left_out == ()


def test_a_reel_of_which_nothing_can_be_read(two: Path) -> None:
    for file in two.glob("*/threads.parquet"):
        file.write_bytes(b"")
    with pytest.raises(TruncatedReelError, match=r"threads\.parquet is empty"):
        torchreel.load(two, skip_damaged=True)


@pytest.mark.parametrize("column", ["id", "name", "async"])
def test_a_column_of_another_type(two: Path, column: str) -> None:
    file = two / "host-2" / "ops.parquet"
    table = pq.read_table(file)
    wrong = pa.array([1.5] * table.num_rows)
    pq.write_table(table.set_column(table.column_names.index(column), column, wrong), file)
    sentence = rf"host-2/ops\.parquet has double in the column {column}"
    with pytest.raises(CorruptReelError, match=sentence):
        torchreel.load(two).table("ops")
    if column == "name":  # to SQL a number is a text like any other
        assert "1.5" in torchreel.load(two).sql("select name from ops")["name"].to_pylist()
        return
    with pytest.raises(CorruptReelError, match=sentence):
        torchreel.load(two).sql(f'select "{column}" from ops')


def test_a_flipped_bit_in_a_page_is_never_read_as_a_value(whole: Path, tmp_path: Path) -> None:
    """Pages have checksums: what is read is what was written."""
    import random

    shutil.copytree(whole, tmp_path / "x.reel")
    file = tmp_path / "x.reel" / "host-2" / "ops.parquet"
    content, expected = file.read_bytes(), torchreel.load(whole).table("ops")
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    for seed in range(200):
        flipped = bytearray(content)
        flipped[random.Random(seed).randrange(4, pages)] ^= 1 << seed % 8
        file.write_bytes(flipped)
        try:
            assert torchreel.load(tmp_path / "x.reel").table("ops").equals(expected), seed
        except CorruptReelError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("command", ["report", "sql", "export", "memory"])
def test_commands_leave_a_damaged_process_out_when_asked(
    whole: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.reel"
    shutil.copytree(whole, path)
    (path / "host-2" / "allocs.parquet").write_bytes(b"PAR1")
    (path / "host-2" / "ops.parquet").write_bytes(b"PAR1")
    more = {
        "sql": ["select count(*) from ops"],
        "export": ["--to", "chrome", "-o", str(tmp_path / "out.json")],
    }.get(command, [])
    assert main([command, str(path), *more]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Error: ") and "host-2/" in said and "--skip-damaged" in said
    assert main([command, str(path), *more, "--skip-damaged"]) == 0
    assert "Process host-2 is left out" in capsys.readouterr().err


def test_the_readers_are_all_tables(whole: Path) -> None:
    """What is damaged above covers each table of the reel, and each reader works on the reel as it is."""
    assert {file.stem for file in whole.glob("*/*.parquet")} >= {
        "ops",
        "allocs",
        "stacks",
        "frames",
        "inputs",
        "modules",
    }
    for reader in damage.READERS.values():
        assert damage.promise_broken(reader, whole, whole.parent, whole) is None
    assert set(damage.TABLES) == set(TABLES)


def test_a_file_that_only_duckdb_refuses(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow reads past some damage that DuckDB stumbles over: it is named all the same, and left out."""
    from torchreel.reel import reel as module

    good = {file: module.read_table(file, TABLES["ops"], TABLES["ops"].names) for file in two.glob("*/ops.parquet")}
    file = two / "host-2" / "ops.parquet"
    file.write_bytes(file.read_bytes()[:-40] + b"\xff" * 32 + file.read_bytes()[-8:])
    read = module.read_table
    monkeypatch.setattr(module, "read_table", lambda path, *rest: good[path] if path == file else read(path, *rest))
    with pytest.raises(CorruptReelError, match=r"host-2/ops\.parquet is damaged"):
        torchreel.load(two).sql("select * from ops")
    assert "host-2/ops.parquet" in torchreel.load(two, skip_damaged=True).left_out[0]
