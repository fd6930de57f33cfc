"""The error boundary, and what is imported for what."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.waiting import until
from torchreel.cli.main import COMMANDS

Torchreel = Callable[..., Outcome]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchreel", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_help_names_every_command(torchreel: Torchreel) -> None:
    outcome = torchreel("--help")
    assert outcome.code == 0
    commands = [line.split()[0] for line in outcome.out.partition("Commands:\n")[2].splitlines()]
    assert commands == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(torchreel: Torchreel, command: str) -> None:
    outcome = torchreel(command, "--help")
    assert outcome.code == 0
    assert f"  torchreel {command}" in outcome.out


def test_version(torchreel: Torchreel) -> None:
    from torchreel import __version__

    assert torchreel("--version") == Outcome(0, f"torchreel {__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        *(["nonesuch"], ["report"], ["report", "run.reel", "--colour"], ["report", "run.reel", "--by", "colour"]),
        *(["report", "run.reel", "--limit", "-1"], ["report", "run.reel", "--kind", "x"], ["sql", "r", "q", "more"]),
        *(["export", "run.reel"], ["export", "run.reel", "--to", "paper"], ["record"], ["record", "--colour", "x.py"]),
    ],
)
def test_usage_errors_exit_with_2(torchreel: Torchreel, arguments: list[str]) -> None:
    outcome = torchreel(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("Usage: torchreel ")
    assert "Traceback" not in outcome.err


def broken(directory: Path, how: str) -> str:
    """Make something of this kind called x.reel, and give the sentence that is expected."""
    path = directory / "x.reel"
    if how == "missing":
        return "There is no reel at x.reel: check the path, or make one with 'torchreel record'."
    if how == "file":
        path.write_text("{}")
        hint = "import it with 'torchreel import' if it is another tool's file"
        return f"x.reel is not a reel (it has no meta.json): {hint}."
    path.mkdir()
    if how == "foreign directory":
        return "x.reel is not a reel (it has no meta.json): name a directory that 'torchreel record' wrote."
    if how == "foreign meta":
        (path / "meta.json").write_text('{"name": "x"}')
        return "x.reel is not a reel (meta.json has no integer 'format'): it belongs to another tool."
    if how == "truncated meta":
        (path / "meta.json").write_text('{"format": 1, "ro')
        return "x.reel/meta.json ends after 17 bytes, before it is complete: restore it from a copy."
    (path / "meta.json").write_text(json.dumps({"format": 999}))
    return (
        "x.reel has format version 999 and this torchreel reads up to 7: "
        "upgrade with 'pip install --upgrade torchreel'."
    )


@pytest.mark.parametrize("command", [["report"], ["sql"], ["sql", "select 1"], ["export", "--to", "chrome"]])
@pytest.mark.parametrize("how", ["missing", "file", "foreign directory", "foreign meta", "truncated meta", "newer"])
def test_bad_reels_are_one_sentence(torchreel: Torchreel, directory: Path, command: list[str], how: str) -> None:
    sentence = broken(directory, how)
    assert torchreel(command[0], "x.reel", *command[1:]) == Outcome(1, "", f"Error: {sentence}\n")


@pytest.mark.parametrize("command", [["report"], ["sql"], ["sql", "select name from ops"]])
@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_truncated_parquet_is_one_sentence(torchreel: Torchreel, reel: Path, command: list[str], keep: float) -> None:
    ops = reel / "host-1" / "ops.parquet"
    data = ops.read_bytes()
    ops.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    outcome = torchreel(command[0], "run.reel", *command[1:])
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("Error: ")
    assert "ops" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_refusal_of_the_system_is_one_sentence(torchreel: Torchreel, reel: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: E501  # fmt: skip
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    expected = "Error: The system refused: Permission denied (run.reel/meta.json).\n"
    assert torchreel("report", "run.reel") == Outcome(1, "", expected)


def test_a_fault_of_ours_is_one_sentence_too(torchreel: Torchreel, reel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise KeyError("colour")

    monkeypatch.setattr("torchreel.analyze.averages", fail)
    outcome = torchreel("report", "run.reel")
    assert outcome.code == 1
    assert outcome.err.startswith("Error: torchreel has a fault (KeyError: 'colour'; in test_main.py line ")
    assert outcome.err.endswith("): please report it with what TORCHREEL_TRACEBACK=1 prints.\n")
    monkeypatch.setenv("TORCHREEL_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in torchreel("report", "run.reel").err


def test_interrupt_exits_with_130(torchreel: Torchreel, reel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("torchreel.analyze.averages", interrupt)
    outcome = torchreel("report", "run.reel")
    assert (outcome.code, outcome.err.strip()) == (130, "")


def test_interrupt_of_a_query_exits_with_130(reel: Path) -> None:
    # GIVEN a query that would run for hours after it has written a file
    query = "copy (select 1) to 'begun.csv'; select sum(sin(range)) from range(1000000000000)"
    command = [sys.executable, "-m", "torchreel", "sql", "run.reel", query]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # WHEN Ctrl-C comes after it has begun: nothing else takes processor time then
    times = Path(f"/proc/{process.pid}/stat")

    def ticks() -> int:
        return int(times.read_text().rpartition(")")[2].split()[11])

    try:
        until(lambda: Path("begun.csv").exists() or process.poll() is not None)
        before = ticks()
        until(lambda: ticks() > before + os.sysconf("SC_CLK_TCK") // 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    finally:
        process.kill()
    # THEN it ends, without a word
    assert (process.returncode, err.strip()) == (130, "")


def test_closed_pipe_is_silent(reel: Path) -> None:
    # GIVEN a reader that goes away without reading anything
    command = f"{sys.executable} -m torchreel sql run.reel 'select * from range(300000)' --format csv"
    result = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (1, "")


def test_no_torch_and_no_colours_for_reading(reel: Path) -> None:
    script = (
        "import sys; from torchreel.cli.main import main;"
        "codes = [main(['report', 'run.reel', '--by', 'module']), main(['sql', 'run.reel', 'select 1']),"
        " main(['--help'])]; print(codes, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout.splitlines()[-1] == "[0, 0, 0] False"
    assert "\x1b" not in result.stdout


def test_help_imports_little(directory: Path) -> None:
    script = (
        "import sys; from torchreel.cli.main import main; main(['--help']);"
        "print([name for name in ('torch', 'duckdb', 'rich') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout.splitlines()[-1] == "[]"


def test_output_that_cannot_show_a_letter(reel: Path) -> None:
    result = run("sql", "run.reel", "select '日本' as x", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert "\\u65e5\\u672c" in result.stdout
