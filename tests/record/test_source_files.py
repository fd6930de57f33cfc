"""The table `sources`: which files a recording's frames name, and whose text is kept."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import torchreel
from tests.record.rows import rows
from torchreel.record import source_files
from torchreel.record.recorder import Recorder
from torchreel.record.source_files import SourceFiles, program_directory
from torchreel.reel.tables import SOURCES

LIBRARY = Path(".venv", "lib", "python3.11", "site-packages", "library.py")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def row(path: Path, content: bytes, text: str | None) -> dict[str, Any]:
    return {"path": str(path), "bytes": len(content), "sha256": digest(content), "text": text}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The directory of a program, with much in it, and something beside it."""
    root = tmp_path / "program"
    (root / LIBRARY).parent.mkdir(parents=True)
    for path in (root / "train.py", root / "package" / "net.py", root / LIBRARY, tmp_path / "elsewhere.py"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {path.name}\n")
    (root / "tool").write_text("#!python\n")
    (root / "large.py").write_bytes(b"#" * ((2 << 20) + 1))
    (root / "just.py").write_bytes(b"#" * (2 << 20))
    (root / "latin.py").write_bytes(b"# coding: latin-1\n# \xe9\n")
    (root / "out.py").symlink_to(tmp_path / "elsewhere.py")
    (root / "deps").symlink_to((root / LIBRARY).parent)
    return root


def test_text_is_that_of_the_programs_own_python_files(program: Path) -> None:
    own = {
        "train.py": "# train.py\n",
        "package/net.py": "# net.py\n",
        "just.py": "#" * (2 << 20),
        "latin.py": "# coding: latin-1\n# é\n",
    }
    others = (str(LIBRARY), "tool", "large.py", "out.py", "deps/library.py", "../elsewhere.py")
    missing = ("gone.py", "package")
    named = [str(program / name) for name in (*own, *others, *missing)] + ["<frozen runpy>", "", "train.py"]
    table = SourceFiles(texts=True)(named, str(program))
    assert table.schema == SOURCES.schema
    expected = [row(program / name, (program / name).read_bytes(), own.get(name)) for name in (*own, *others)]
    assert table.to_pylist() == sorted(expected, key=lambda each: each["path"])


def test_without_texts_there_are_hashes_only(program: Path) -> None:
    file = program / "train.py"
    assert SourceFiles(texts=False)([str(file)], str(program)).to_pylist() == [row(file, b"# train.py\n", None)]


@pytest.mark.parametrize("directory", [None, "/nowhere/at/all", "/tmp/\0"])
def test_of_a_program_without_a_directory_no_text_is_kept(program: Path, directory: str | None) -> None:
    file = program / "train.py"
    assert SourceFiles(texts=True)([str(file)], directory).to_pylist() == [row(file, b"# train.py\n", None)]


def test_a_directory_that_a_link_leads_to_is_the_programs(program: Path) -> None:
    link = program.parent / "link"
    link.symlink_to(program)
    (found,) = SourceFiles(texts=True)([str(link / "train.py")], str(link)).to_pylist()
    assert found == row(link / "train.py", b"# train.py\n", "# train.py\n")


def test_a_file_is_read_once_for_all_processes(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    content_of = source_files.content_of
    monkeypatch.setattr(source_files, "content_of", lambda file: (read.append(file), content_of(file))[1])
    sources = SourceFiles(texts=True)
    file, gone = str(program / "train.py"), str(program / "gone.py")
    first = sources([file, gone, file], str(program)).to_pylist()
    # Another process may have another directory: what is its own follows from that.
    second = sources([gone, file], str(program / "package")).to_pylist()
    assert sorted(read) == sorted([file, gone])
    assert [each["text"] for each in first + second] == ["# train.py\n", None]


def test_texts_have_a_limit_together(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MOST_TEXTS", len("# train.py\n"))
    files = [str(program / name) for name in ("package/net.py", "train.py")]
    found = SourceFiles(texts=True)(files, str(program)).to_pylist()
    assert [each["text"] for each in found] == ["# net.py\n", None]
    assert all(each["sha256"] for each in found)


@pytest.mark.parametrize(
    ("file", "spec", "directory"),
    [
        ("/home/me/train.py", None, "/home/me"),  # python train.py
        ("/home/me/train.py", "train", "/home/me"),  # python -m train
        ("/home/me/package/train.py", "package.train", "/home/me"),  # python -m package.train
        ("/home/me/package/__main__.py", "package.__main__", "/home/me"),  # python -m package
        ("/home/me/work/__main__.py", "__main__", "/home/me/work"),  # python work/
        ("/a.py", "a.b.c.d", None),
        (None, None, None),  # a notebook, python -c
        ("/home/\0", None, None),
    ],
)
def test_the_directory_of_the_program(
    monkeypatch: pytest.MonkeyPatch, file: str | None, spec: str | None, directory: str | None
) -> None:
    main = ModuleType("__main__")
    main.__file__ = file
    main.__spec__ = SimpleNamespace(name=spec) if spec is not None else None  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    found = program_directory()
    assert (found and str(found)) == directory


def run_file(file: Path, text: str) -> None:
    """Run it in this process, as if it had been imported."""
    file.write_text(text)
    exec(compile(text, str(file), "exec"), {"torch": torch})


def test_every_file_that_frames_name_has_a_row(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", stacks=True):
        run_file(tmp_path / "own.py", "torch.nn.Linear(3, 3)(torch.ones(2, 3))\n")
        exec(compile("torch.ones(1)", str(tmp_path / "never.py"), "exec"), {"torch": torch})
    reel = torchreel.load(tmp_path / "a.reel")
    named = {each["file"] for each in rows(reel, "select distinct file from frames")}
    assert {str(tmp_path / "own.py"), str(tmp_path / "never.py"), __file__} <= named
    found = {each["path"]: each for each in reel.sources.to_pylist()}
    assert set(found) == {file for file in named if file.startswith("/") and Path(file).is_file()}
    for file, each in found.items():
        content = Path(file).read_bytes()
        assert (each["process"], each["bytes"], each["sha256"]) == (0, len(content), digest(content))


def test_a_file_is_hashed_as_it_is_at_the_end(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", stacks=True):
        for name in ("changed.py", "removed.py"):
            run_file(tmp_path / name, "torch.ones(1)\n")
        (tmp_path / "changed.py").write_text("torch.ones(2)\n")
        (tmp_path / "removed.py").unlink()
    reel = torchreel.load(tmp_path / "a.reel")
    (found,) = rows(reel, f"select path, sha256 from sources where path like '{tmp_path}/%'")
    assert found == {"path": str(tmp_path / "changed.py"), "sha256": digest(b"torch.ones(2)\n")}


def test_without_stacks_there_are_no_sources(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", shapes=True, memory=True, modules=True):
        torch.ones(1)
    assert torchreel.load(tmp_path / "a.reel").sources.num_rows == 0
    assert not list(tmp_path.glob("a.reel/*/sources.parquet"))


def test_sources_come_at_the_end(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", stacks=True) as recorder:
        torch.ones(1)
        assert recorder.peek().frames.num_rows > 0
        assert recorder.peek().sources.num_rows == 0
    assert torchreel.load(tmp_path / "a.reel").sources.num_rows > 0


def test_each_dump_of_a_flight_recorder_has_its_own(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    with torchreel.record(tmp_path / "a.reel", stacks=True, ring="2MB") as recorder:
        run_file(file, "torch.ones(1)\n")
        first = recorder.dump()
        file.write_text("# other\n")
        second = recorder.dump()
    hashes = [rows(reel, f"select sha256 from sources where path = '{file}'") for reel in (first, second)]
    assert hashes == [[{"sha256": digest(b"torch.ones(1)\n")}], [{"sha256": digest(b"# other\n")}]]


def test_a_part_of_a_recording_has_its_own(tmp_path: Path) -> None:
    outer = Recorder(tmp_path / "outer.reel", torchreel.RecordOptions(stacks=True), from_outside=True, program=tmp_path)
    with outer:
        with torchreel.record(tmp_path / "inner.reel", stacks=True):
            run_file(tmp_path / "own.py", "torch.ones(1)\n")
        with torchreel.record(tmp_path / "hashes.reel", stacks=True, source=False):
            run_file(tmp_path / "own.py", "torch.ones(1)\n")
    texts = {
        name: rows(torchreel.load(tmp_path / name), f"select text from sources where path = '{tmp_path}/own.py'")
        for name in ("outer.reel", "inner.reel", "hashes.reel")
    }
    own = [{"text": "torch.ones(1)\n"}]
    assert texts == {"outer.reel": own, "inner.reel": own, "hashes.reel": [{"text": None}]}


def test_a_private_recording_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "content_of", lambda file: pytest.fail(f"{file} was read"))
    with Recorder(tmp_path / "a.reel", torchreel.RecordOptions(stacks=True), private=True):
        torch.ones(1)
    assert torchreel.load(tmp_path / "a.reel").sources.num_rows == 0


def _work() -> None:
    torch.ones(3)


def test_a_child_that_was_killed_has_sources(tmp_path: Path) -> None:
    def child(ready: Any) -> None:
        from torchreel import _core

        _work()
        _core.flush()
        ready.set()
        signal.pause()

    context = multiprocessing.get_context("fork")
    ready = context.Event()
    with torchreel.record(tmp_path / "a.reel", stacks=True):
        process = context.Process(target=child, args=(ready,))
        process.start()
        assert ready.wait(300)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    reel = torchreel.load(tmp_path / "a.reel")
    killed = "process in (select process from processes where not complete)"
    (found,) = rows(reel, f"select sha256 from sources where {killed} and path = '{__file__}'")
    assert found["sha256"] == digest(Path(__file__).read_bytes())


PROGRAM = """
import multiprocessing, os, subprocess, sys
import torch
import torchreel
from helper import double

def work(number):
    return float(double(torch.ones(number)).sum())

if __name__ == "__main__":
    with torchreel.record(sys.argv[1], stacks=True, source=sys.argv[2] == "texts"):
        os.chdir("/")
        work(1)
        for start in ("fork", "spawn"):
            with multiprocessing.get_context(start).Pool(1) as pool:
                assert pool.map(work, [3]) == [6.0]
                pool.close()
                pool.join()
        subprocess.run([sys.executable, sys.argv[3]], check=True)
"""
HELPER = "def double(x):\n    return x + x\n"
TOOL = "import sys\nimport torch\nimport beside\nbeside.run()\n"
BESIDE = "import torch\ndef run():\n    torch.ones(2).exp()\n"


@pytest.mark.parametrize("kept", ["texts", pytest.param("hashes", marks=pytest.mark.long)])
def test_each_process_keeps_the_text_of_its_own_program(tmp_path: Path, kept: str) -> None:
    """Forked, spawned, and started as a program of another directory."""
    files = {"one/train.py": PROGRAM, "one/helper.py": HELPER, "two/tool.py": TOOL, "two/beside.py": BESIDE}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    arguments = (tmp_path / "one/train.py", tmp_path / "a.reel", kept, tmp_path / "two/tool.py")
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "a.reel")
    assert len(reel.parts) == 4
    for process, name in ((0, "one/train.py"), (0, "one/helper.py")):
        (found,) = rows(reel, f"select text from sources where process = {process} and path = '{tmp_path / name}'")
        assert found["text"] == (files[name] if kept == "texts" else None)
    own = rows(reel, f"select path, text, count(*) as n from sources where path like '{tmp_path}/%' group by all")
    assert {str(tmp_path / name) for name in files} == {each["path"] for each in own}
    by_name = {Path(each["path"]).relative_to(tmp_path).as_posix(): each for each in own}
    assert {name: each["text"] for name, each in by_name.items()} == {
        name: text if kept == "texts" else None for name, text in files.items()
    }
    # The main process, the fork and the spawned one ran the first two.
    assert (by_name["one/helper.py"]["n"], by_name["two/beside.py"]["n"]) == (3, 1)
    library = rows(reel, "select count(*) as n, count(text) as texts from sources where path like '%/torch/%'")
    assert library[0]["texts"] == 0


def test_a_program_without_a_file_keeps_what_is_below_its_working_directory(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import torch\ndef double(x):\n    return x + x\n")
    script = """
    import os, sys, torch, torchreel
    sys.path.insert(0, os.getcwd())
    from helper import double
    with torchreel.record("a.reel", stacks=True):
        double(torch.ones(2))
        os.chdir("/")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    (found,) = rows(torchreel.load(tmp_path / "a.reel"), "select path, text from sources where text is not null")
    assert found == {"path": str(tmp_path / "helper.py"), "text": (tmp_path / "helper.py").read_text()}
