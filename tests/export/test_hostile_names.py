"""Names that hold anything: every export is a valid file, and tables on a terminal keep their shape."""

from __future__ import annotations

import csv
import io
import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.export.reels import ProcessBuilder, build
from tests.export_formats import WRITABLE
from tests.program.small import small_program
from torchreel.cli.main import main
from torchreel.cli.terminal.table import printable
from torchreel.export import FORMATS, export
from torchreel.reel import Reel

NAMES = [
    "\0",
    "a\0b",
    'say "hi"',
    "it's",
    "back\\slash\\",
    "line\nbreak",
    "\r\n",
    "carriage\rreturn",
    "tab\tstop",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "\x7f\x80\x85",
    "\u2028\u2029",
    "\u202eesrever\u202c",
    "\ufeffbom",
    "a;b c",
    "",
    " ",
    "</script><!--",
    "|pipe|`tick`",
    "{'json': [1, 2",
    ",comma,\"'",
    "NaN",
    "日本語 🎞 é e\u0301",
    "x" * 5000,
    "=cmd|' /C calc'!A0",
]
PER_PROCESS = 9


@pytest.fixture(scope="module")
def reel(tmp_path_factory: pytest.TempPathFactory) -> Reel:
    """Every name stands wherever a reel has a text. There are few processes: each table of each is a file to open."""
    processes = []
    for first in range(0, len(NAMES), PER_PROCESS):
        texts = NAMES[first : first + PER_PROCESS]
        together = "/".join(texts)
        process = ProcessBuilder(f"host-{first:03}", 1000 * (first + 1), host=together, command=together)
        for index, name in enumerate(texts):
            _add(process, index, first + index, name)
        processes.append(process)
    path = tmp_path_factory.mktemp("names") / "run.reel"
    return build(path, *processes, metadata={name: [name, "\ud800"] for name in NAMES})


def _add(process: ProcessBuilder, index: int, number: int, name: str) -> None:
    thread, start = index + 1, 100_000 * index
    process.thread(thread, 1000 * number + 1, name)
    process.add("frames", id=index, file=name, line=1, function=name)
    process.add("stacks", id=index, frames=[index, index])
    process.add("modules", id=index, path=name, **{"class": name})
    texts = {"dims": name, "strides": json.dumps([name]), "dtypes": '["\\ud800"]', "scalars": json.dumps(name)}
    process.add("inputs", id=index, **texts)
    of = {"stack": index, "module": index, "inputs": index}
    op = process.op(name, start, start + 10_000, thread=thread, backend=name, **of)
    range_ = process.range(name, start + 20_000, start + 30_000, thread=thread)
    process.add("marks", thread=0, time_ns=process.rows["processes"][0]["start_ns"] + start, name=name)
    process.add("flows", id=number, name=name, end="out", thread=thread, time_ns=1, op=op)
    process.add("flows", id=number, name=name, end="in", thread=thread, time_ns=2, op=range_)
    process.add("counters", op=op, name=name, value=3)
    process.add("kernels", id=index, device="cuda:0", stream=7, name=name, start_ns=start + 1, dur_ns=1, op=op)
    process.alloc(
        start + 5, 64, stack=index, category=name, metadata=name, compile_context=name, addr=4096 * (index + 1)
    )
    process.add("settings", name=f"key {name}", value='"\\ud800"')
    process.add("annotations", stage="START", name=name, device="cpu", time_ns=start + 5)


def written(reel: Reel, to: str, name: str = "out") -> bytes:
    stream = io.BytesIO()
    stream.name = name  # type: ignore[attr-defined]
    export(reel, stream, to)
    return stream.getvalue()


def strict_json(content: bytes) -> Any:
    """Two readers agree on it, one of which refuses what RFC 8259 does."""
    value = msgspec.json.decode(content)
    assert json.loads(content.decode()) == value
    return value


def test_chrome(reel: Reel) -> None:
    trace = strict_json(written(reel, "chrome"))
    events = trace["traceEvents"]
    assert sorted(e["name"] for e in events if e.get("cat") == "cpu_op") == sorted(NAMES)
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} >= {
        f"thread {1000 * number + 1} ({name})" for number, name in enumerate(NAMES) if name
    }
    assert set(NAMES) <= {e["name"] for e in events if e.get("ph") == "i"}


def test_perfetto(reel: Reel) -> None:
    content = written(reel, "perfetto")
    texts = set()
    for packet in messages(content, 1):
        for interned in messages(packet, 12):
            for entry in messages(interned, 2):
                texts |= {text.decode() for text in messages(entry, 2)}
    assert set(NAMES) <= texts


def messages(content: bytes, wanted: int) -> list[bytes]:
    """The fields of this number in a message of protobuf, which must be whole."""
    at, found = 0, []

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(content):
        tag = varint()
        if tag & 7 == 0:
            varint()
        elif tag & 7 == 1:
            at += 8
        else:
            assert tag & 7 == 2
            size = varint()
            assert at + size <= len(content)
            if tag >> 3 == wanted:
                found.append(content[at : at + size])
            at += size
    return found


def test_speedscope(reel: Reel) -> None:
    shown = strict_json(written(reel, "speedscope"))
    assert {frame["name"] for frame in shown["shared"]["frames"]} == set(NAMES)


def test_stacks(reel: Reel) -> None:
    text = written(reel, "stacks").decode()
    lines = text.splitlines()
    assert lines == text.split("\n")[:-1]  # nothing in them ends a line
    for line in lines:
        stack, _, number = line.rpartition(" ")
        assert number.isdigit() and len(stack.split(";")) == 2 and not set(stack) & set(" \t\0\x1b\x85")


def test_snapshot(reel: Reel) -> None:
    pickled = pickle.loads(written(reel, "snapshot"))
    told = strict_json(written(reel, "snapshot", "memory.json"))
    for snapshot in (pickled, told):
        assert {entry["name"] for entry in snapshot["external_annotations"]} == set(NAMES)
        files = {frame["filename"] for trace in snapshot["device_traces"] for e in trace for frame in e["frames"]}
        assert files == set(NAMES)


def test_execution_trace() -> None:
    program = small_program()
    program.ops[0].name = 'aten::"\0\n\ud800\x1b'
    stream = io.BytesIO()
    export(program, stream, "execution-trace")
    assert any("\0" in node["name"] for node in strict_json(stream.getvalue())["nodes"])


def test_all_formats_are_here() -> None:
    assert set(FORMATS) == {"chrome", "perfetto", "speedscope", "stacks", "snapshot", "html"}


def is_harmless(text: str) -> bool:
    return printable(text) == text


@pytest.mark.parametrize("by", ["name", "module", "thread", "process", "inputs"])
def test_the_table_of_a_report_keeps_its_shape(reel: Reel, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(reel.path), "--by", by, "--limit", "0", "--kind", "op"]) == 0
    out = capsys.readouterr().out
    assert is_harmless(out)
    lines = out.split("\n")
    rule = next(number for number, line in enumerate(lines) if line.startswith("----"))
    rows = lines[rule + 1 : lines.index("", rule)]
    assert len(rows) == (len(NAMES) // PER_PROCESS if by == "process" else len(NAMES))  # a row is a line
    assert all(("90.000us" if by == "process" else "10.000us") in row for row in rows)


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_no_control_character_reaches_a_terminal(reel: Reel, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["report", str(reel.path), "--by", "name,stack", "--format", form],
        ["sql", str(reel.path), "select * from ops join threads using (process)", "--format", form],
        ["memory", str(reel.path), "--format", form],
        ["sql", str(reel.path), "select \x1b[31m"],
        ["report", "no\x1b[31m.reel"],
    ):
        main(command)
        captured = capsys.readouterr()
        assert is_harmless(captured.out) and is_harmless(captured.err), command


def test_csv_and_json(reel: Reel, capsys: pytest.CaptureFixture[str]) -> None:
    query = "select name from ops where kind = 'op' order by process, id"
    assert main(["sql", str(reel.path), query, "--format", "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert rows == [["name"], *([name] for name in NAMES)]
    assert main(["sql", str(reel.path), query, "--format", "json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]] == NAMES
    assert main(["report", str(reel.path), "--format", "csv"]) == 0
    assert {row[0] for row in csv.reader(io.StringIO(capsys.readouterr().out, newline=""))} >= set(NAMES)


def test_a_reel_whose_own_name_is_strange(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = ProcessBuilder("host-1", 1)
    process.op("aten::add", 0, 10)
    path = tmp_path / 'a\x1b[31m"\n.reel'
    reel = build(path, process)
    for to in WRITABLE:
        written(reel, to)
    assert main(["report", str(path)]) == 0
    assert is_harmless(capsys.readouterr().out)
