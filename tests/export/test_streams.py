"""Exports to streams that somebody else opened, and to the standard output."""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.export.reels import ProcessBuilder, build, training_step
from tests.export_formats import EVERY_FORMAT
from tests.program.small import small_program
from torchreel.cli.main import main
from torchreel.errors import OptionError, TorchreelError
from torchreel.export import FORMATS, export
from torchreel.program.file.file import write_tape
from torchreel.reel import Reel

BYTES = [to for to, format in FORMATS.items() if not format.is_text]


@pytest.fixture(scope="module")
def reel(tmp_path_factory: pytest.TempPathFactory) -> Reel:
    process = ProcessBuilder("host-7", 7)
    training_step(process)
    return build(tmp_path_factory.mktemp("streams") / "run.reel", process)


@functools.cache
def in_a_file(reel: Reel, to: str) -> bytes:
    file = reel.path.parent / "out"
    export(reel, file, to)
    content = file.read_bytes()
    file.unlink()
    return content


def without_name(content: bytes, to: str) -> bytes:
    return content.replace(b'"traceName": "out"', b'"traceName": ""') if to == "chrome" else content


@pytest.mark.parametrize("to", EVERY_FORMAT)
def test_a_stream_gets_what_a_file_gets(reel: Reel, to: str) -> None:
    stream = io.BytesIO()
    stream.write(b"before ")
    export(reel, stream, to)
    assert stream.getvalue() == b"before " + without_name(in_a_file(reel, to), to)
    assert not stream.closed


@pytest.mark.parametrize("to", [each for each in EVERY_FORMAT if each.values[0] not in BYTES])
def test_a_stream_of_text(reel: Reel, to: str) -> None:
    stream = io.StringIO()
    export(reel, stream, to)
    assert stream.getvalue().encode() == without_name(in_a_file(reel, to), to)


def test_an_open_file_of_text(reel: Reel) -> None:
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as file:
        export(reel, file, "speedscope")
        file.seek(0)
        assert file.read().encode() == in_a_file(reel, "speedscope")


@pytest.mark.parametrize("to", BYTES)
def test_bytes_do_not_go_into_text(reel: Reel, to: str) -> None:
    with pytest.raises(OptionError, match=r"bytes and the stream takes text: .*\.buffer"):
        export(reel, io.StringIO(), to)


def test_the_name_of_an_open_file_counts(reel: Reel, tmp_path: Path) -> None:
    with (tmp_path / "memory.json").open("w") as file:
        export(reel, file, "snapshot")
    assert "segments" in json.loads((tmp_path / "memory.json").read_text())


def test_an_execution_trace_of_a_tape(tmp_path: Path) -> None:
    stream = io.StringIO()
    export(small_program(), stream, "execution-trace")
    assert json.loads(stream.getvalue())["nodes"]


class Slow(io.RawIOBase):
    """Takes seven bytes at a time, as a full pipe would."""

    def __init__(self) -> None:
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.content += bytes(data[:7])
        return min(7, len(data))


class OnlyWrite:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(bytes(data))


def test_streams_that_take_a_part_at_a_time_or_say_nothing(reel: Reel) -> None:
    slow, only = Slow(), OnlyWrite()
    export(reel, slow, "chrome")
    export(reel, only, "chrome")
    assert slow.content == b"".join(only.pieces)
    assert json.loads(slow.content)["traceEvents"]


def test_streams_that_cannot_be_written(reel: Reel, tmp_path: Path) -> None:
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(OptionError, match="closed"):
        export(reel, closed, "chrome")
    (tmp_path / "x").write_bytes(b"")
    with (tmp_path / "x").open("rb") as file, pytest.raises(OptionError, match="reading only"):
        export(reel, file, "chrome")
    with pytest.raises(OptionError, match="int is neither"):
        export(reel, 5, "chrome")  # type: ignore[arg-type]
    with Path("/dev/full").open("wb", buffering=0) as file, pytest.raises(TorchreelError, match="No space left"):
        export(reel, file, "chrome")


def test_a_text_that_the_encoding_has_not(tmp_path: Path) -> None:
    process = ProcessBuilder("host-7", 7)
    process.op("π", 0, 10)
    reel = build(tmp_path / "run.reel", process)
    with (tmp_path / "x").open("w", encoding="latin-1") as file, pytest.raises(OptionError, match="'π' in latin-1"):
        export(reel, file, "chrome")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "torchreel", *arguments]


@pytest.mark.parametrize("to", EVERY_FORMAT)
def test_the_standard_output(reel: Reel, to: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["export", str(reel.path), "--to", to, "-o", "-"]) == 0
    out, err = capfdbinary.readouterr()
    if to == "chrome":
        assert json.loads(out)["traceEvents"]
    elif to == "snapshot":
        assert "segments" in pickle.loads(out)
    else:
        assert out == in_a_file(reel, to)
    assert err == b"" and not Path("-").exists()


def test_a_tape_to_the_standard_output(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_tape(tmp_path / "step.tape", small_program(), None)
    assert main(["export", str(tmp_path / "step.tape"), "--to", "execution-trace", "-o", "-"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["nodes"]


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    process = ProcessBuilder("host-7", 7)
    for number in range(20_000):
        process.op("aten::add", 10 * number, 10 * number + 5)
    build(tmp_path / "run.reel", process)
    read, write = os.pipe()
    running = subprocess.Popen(
        command("export", str(tmp_path / "run.reel"), "--to", "chrome", "-o", "-"), stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert os.read(read, 10)
    os.close(read)
    assert running.communicate()[1] == b""
    assert running.returncode == 1


def test_piped_into_another_program(reel: Reel) -> None:
    shown = subprocess.run(
        f"{' '.join(command('export', str(reel.path), '--to', 'chrome', '-o', '-'))} | {sys.executable} -m json.tool",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0 and '"traceEvents"' in shown.stdout and shown.stderr == ""


def test_a_terminal_gets_no_bytes(reel: Reel) -> None:
    import pty

    master, terminal = pty.openpty()
    result = subprocess.run(
        command("export", str(reel.path), "--to", "perfetto", "-o", "-"), stdout=terminal, stderr=subprocess.PIPE
    )
    os.close(terminal)
    os.close(master)
    assert result.returncode == 1
    assert b"perfetto is bytes, which a terminal cannot show" in result.stderr


def test_reels_are_not_written_to_the_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.pt").write_bytes(b"")
    for arguments in (["import", "snapshot.pickle", "-o", "-"], ["edge", str(tmp_path / "model.pt"), "-o", "-"]):
        assert main(arguments) == 1
        assert "A reel is a directory, which the standard output cannot hold" in capsys.readouterr().err


def test_two_threads_export_at_once(reel: Reel) -> None:
    streams = [io.BytesIO() for _ in range(4)]
    threads = [threading.Thread(target=export, args=(reel, stream, "chrome")) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({stream.getvalue() for stream in streams}) == 1
