"""Names that are no UTF-8, or hold a NUL: each is recorded, with a replacement that every reader reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel
from tests.record.rows import names, rows
from torchreel.export import export

# What is given, and what is read.
TEXTS = {
    "\0first": r"\x00first",
    "mid\0dle": r"mid\x00dle",
    "byte \udcff": r"byte \xff",
    "half \ud800": r"half \ud800",
    "caf\u00e9 \U0001f600": "caf\u00e9 \U0001f600",
}


def record_ranges(path: Path, given: list[Any], **options: Any) -> torchreel.Reel:
    with torchreel.record(path, **options) as recorder:
        for name in given:
            with torchreel.range(name):
                torch.ones(1)
            torchreel.mark(name)
    return torchreel.load(recorder.path)


def test_ranges_and_marks_of_any_name_are_recorded(tmp_path: Path) -> None:
    reel = record_ranges(tmp_path / "a.reel", [*TEXTS, b"raw \xfe\xff"])
    expected = [*TEXTS.values(), r"raw \xfe\xff"]
    assert names(reel, "kind = 'range'") == expected
    assert reel.marks["name"].to_pylist() == expected


def test_a_range_of_torchs_own_with_a_nul_is_recorded(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"), torch.profiler.record_function("\0nul\0"):
        torch.ones(1)
    assert names(torchreel.load(tmp_path / "a.reel"), "kind = 'range'") == [r"\x00nul\x00"]


def test_names_too_many_for_ids_are_replaced_alike(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"):
        for number in range(1 << 16):
            torchreel.mark(f"mark {number}")
        with torch.profiler.record_function("\0late"):
            torch.ones(1)
    assert names(torchreel.load(tmp_path / "a.reel"), "kind = 'range'") == [r"\x00late"]


@pytest.mark.parametrize("to", ["chrome", "perfetto", "speedscope"])
def test_every_export_can_be_written(tmp_path: Path, to: str) -> None:
    reel = record_ranges(tmp_path / "a.reel", list(TEXTS))
    target = tmp_path / "out"
    export(reel, target, to=to)
    content = target.read_bytes()
    if to != "perfetto":
        text = json.dumps(json.loads(content), ensure_ascii=False)
        assert all(json.dumps(name, ensure_ascii=False)[1:-1] in text for name in TEXTS.values())
    else:
        assert all(name.encode() in content for name in TEXTS.values())


def test_report_and_sql_show_them(tmp_path: Path) -> None:
    record_ranges(tmp_path / "a.reel", list(TEXTS))
    program = [sys.executable, "-m", "torchreel"]
    report = subprocess.run(
        [*program, "report", tmp_path / "a.reel", "--format", "json", "--limit", "100"], capture_output=True, text=True
    )
    assert report.returncode == 0, report.stderr
    shown = {row["name"] for row in json.loads(report.stdout)["rows"]}
    assert set(TEXTS.values()) <= shown
    query = "select name from ops where kind = 'range' order by id"
    result = subprocess.run(
        [*program, "sql", tmp_path / "a.reel", query, "--format", "csv"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert r"byte \xff" in result.stdout


def test_names_of_threads(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"):
        for name in TEXTS:
            thread = threading.Thread(target=torch.ones, args=(1,), name=name)
            thread.start()
            thread.join()
    assert torchreel.load(tmp_path / "a.reel").threads["name"].to_pylist() == list(TEXTS.values())


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in TEXTS:
            self.add_module(name.replace(".", ""), torch.nn.Identity())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.children():
            x = part(x)
        return x.sin()


def test_names_of_modules(tmp_path: Path) -> None:
    model = Holder()
    with torchreel.record(tmp_path / "a.reel", modules=True):
        model(torch.ones(1))
    paths = torchreel.load(tmp_path / "a.reel").modules["path"].to_pylist()
    assert paths == ["Holder", *(f"Holder.{name}" for name in TEXTS.values())]


def code_of(file: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile("import torch\ndef run():\n    return torch.ones(7)\n", file, "exec"), space)
    return space["run"]


def test_files_in_stacks_and_in_names_of_python_calls(tmp_path: Path) -> None:
    functions = {code_of(f"/src/{given}.py"): f"/src/{text}.py" for given, text in TEXTS.items() if "\0" not in given}
    with torchreel.record(tmp_path / "a.reel", stacks=True, python=True):
        for run in functions:
            run()
    reel = torchreel.load(tmp_path / "a.reel")
    files = set(reel.frames["file"].to_pylist())
    assert set(functions.values()) <= files
    calls = names(reel, "kind = 'python'")
    assert all(f"{file}(2): run" in calls for file in functions.values())


def test_files_and_ranges_in_a_memory_snapshot() -> None:
    run = code_of("/src/f\udcff.py")
    torchreel.memory.record_history()
    try:
        with torchreel.range("annotated \udcff"):
            kept = run()
        text = repr(torchreel.memory.snapshot())
    finally:
        torchreel.memory.record_history(enabled=None)
    assert kept.numel() == 7
    for name in (r"/src/f\\xff.py", r"annotated \\xff"):
        assert name in text


def test_arguments_of_the_program(tmp_path: Path) -> None:
    script = "import sys, torch, torchreel\nwith torchreel.record(sys.argv[1]): torch.ones(1)\n"
    program = [sys.executable, "-c", script, os.fsencode(tmp_path / "a.reel"), b"\xff"]
    result = subprocess.run(program, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (process,) = rows(torchreel.load(tmp_path / "a.reel"), "select command from processes")
    assert process["command"].endswith(r" \xff")


def test_a_name_that_is_no_text_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"The name of a range or a mark is a text, and this is a value of type int\."):
        torchreel.range(5)  # type: ignore[arg-type]
