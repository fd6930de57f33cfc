"""`torchreel export`: where the file goes, and what is said of it. The formats have tests of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.export_formats import EVERY_FORMAT, needs_page
from tests.program.small import small_program
from torchreel._units import bytes_text
from torchreel.export import FORMATS
from torchreel.program.file.file import write_tape

Torchreel = Callable[..., Outcome]


@pytest.mark.parametrize("target", EVERY_FORMAT)
def test_default_name_and_what_opens_it(torchreel: Torchreel, reel: Path, target: str) -> None:
    ending, advice = FORMATS[target].ending, FORMATS[target].opened_by
    outcome = torchreel("export", "run.reel/", "--to", target)
    path = Path(f"run{ending}")
    size = bytes_text(path.stat().st_size)
    assert outcome == Outcome(0, f"Wrote run{ending} ({size}): {advice}.\n", "")


def test_a_file_is_replaced_only_with_force(torchreel: Torchreel, reel: Path) -> None:
    path = Path("trace.json")
    path.write_text("mine")
    sentence = "trace.json exists: name another file with -o, or give --force to replace it."
    command = ("export", "run.reel", "--to", "chrome", "-o", "trace.json")
    assert torchreel(*command) == Outcome(1, "", f"Error: {sentence}\n")
    assert path.read_text() == "mine"
    assert torchreel(*command, "--force").code == 0
    assert "aten::addmm" in path.read_text()


def test_a_directory_is_refused(torchreel: Torchreel, reel: Path) -> None:
    sentence = "run.reel is a directory: name a file to write to with -o."
    outcome = torchreel("export", "run.reel", "--to", "chrome", "-o", "run.reel", "--force")
    assert outcome == Outcome(1, "", f"Error: {sentence}\n")
    assert torchreel("export", "run.reel", "--to", "chrome", "-o", "no/where.json").err.count("\n") == 1


def test_a_tape_file_becomes_an_execution_trace(torchreel: Torchreel, reel: Path) -> None:
    write_tape(Path("step.tape"), small_program(), None)
    outcome = torchreel("export", "step.tape", "--to", "execution-trace")
    size = bytes_text(Path("step.et.json").stat().st_size)
    advice = "give it to the tools of Chakra or to et_replay"
    assert outcome == Outcome(0, f"Wrote step.et.json ({size}): {advice}.\n", "")
    for source, words in (
        ("run.reel", "holds no tape, which an execution trace is made of"),
        ("nothing.tape", "There is no tape at nothing.tape"),
        ("step.et.json", "is not a tape"),
    ):
        outcome = torchreel("export", source, "--to", "execution-trace", "-o", "other.json")
        assert outcome.code == 1 and words in outcome.err and outcome.err.count("\n") == 1
    outcome = torchreel("export", "step.tape", "--to", "chrome")
    assert outcome.code == 1 and "step.tape is not a reel" in outcome.err


@needs_page
def test_options_of_html(torchreel: Torchreel, reel: Path) -> None:
    command = ("export", "run.reel", "--to", "html")
    assert torchreel(*command, "--no-source", "--compare", "run.reel", "-o", "two.html").code == 0
    assert Path("two.html").stat().st_size > 50_000
    outcome = torchreel(*command, "--budget", "1KB")
    assert outcome.code == 1 and "the file may have 1,000" in outcome.err and not Path("run.html").exists()
    assert "'much' is not a size" in torchreel(*command, "--budget", "much").err
    assert "There is no reel at none.reel" in torchreel(*command, "--compare", "none.reel").err


@pytest.mark.parametrize("option", [("--budget", "5MB"), ("--no-source",), ("--compare", "run.reel")])
def test_other_formats_refuse_the_options_of_html(torchreel: Torchreel, reel: Path, option: tuple[str, ...]) -> None:
    sentence = f"Error: {option[0]} is for --to html, and chrome has no such option: leave it out.\n"
    assert torchreel("export", "run.reel", "--to", "chrome", *option) == Outcome(1, "", sentence)
    assert not Path("run.json.gz").exists()
