"""`torchreel atlas`: what it prints, and its sentences."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.atlas.sites import TREE, written
from tests.cli.conftest import Outcome

Torchreel = Callable[..., Outcome]


@pytest.fixture
def source(directory: Path) -> Path:
    return written(directory / "src")


def test_a_site_and_its_check(torchreel: Torchreel, source: Path) -> None:
    outcome = torchreel("atlas", "-o", "site", "--source", "src", "--jobs", "1")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"site: {len(TREE)} source files, {len(TREE)} of them read; ")
    assert outcome.out.endswith(" files of the site written. Open site/index.html in a browser.\n")
    assert Path("site/files/src/pkg/tools.py.html").is_file()
    outcome = torchreel("atlas", "--check", "site")
    assert outcome.code == 0 and outcome.out.endswith(" 0 problems.\n")
    assert torchreel("atlas", "-o", "site", "--source", "src").out.startswith(
        f"site: {len(TREE)} source files, 0 of them read; 0 files of the site written."
    )
    Path("site/files/src/pkg/tools.py.html").unlink()
    outcome = torchreel("atlas", "--check", "site")
    assert outcome.code == 1 and "files/src/pkg/tools.py.html" in outcome.out


def test_named_sources_and_exclusions(torchreel: Torchreel, source: Path) -> None:
    outcome = torchreel(
        "atlas", "-o", "site", "--source", "a=src/pkg", "--source", "src/native", "--exclude", "*.h", "--jobs", "1"
    )
    assert outcome.out.startswith("site: 4 source files")
    assert Path("site/files/a/tools.py.html").is_file() and Path("site/files/native/kernel.cpp.html").is_file()


def test_tables(torchreel: Torchreel, source: Path) -> None:
    torchreel("atlas", "-o", "site", "--source", "src", "--jobs", "1")
    outcome = torchreel("sql", "site", "select name from symbols where kind = 'class'", "--format", "csv")
    assert (outcome.code, outcome.out) == (0, "name\nLinear\n")
    listed = json.loads(torchreel("sql", "site", "--format", "json").out)["tables"]
    assert {table["name"]: table["rows"] for table in listed}["files"] == len(TREE)
    assert torchreel("sql", "site").out.startswith("Table")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--source", "src"), "Name the folder of the site: torchreel atlas ... -o SITE."),
        (("-o", "site"), "There is nothing to read: name a folder with --source, or a reel."),
        (("-o", "site", "--source", "none"), "none is not a folder: name the folder of a source tree."),
        (("-o", "site", "--source", "src", "--source", "src"), "Two sources are named 'src'"),
        (("-o", "src", "--source", "src"), "src is the source 'src' itself"),
        (("none.reel", "-o", "site"), "There is no reel at none.reel"),
        (("-o", "site", "--source", "src", "--executed"), "executed keeps the files that a run entered"),
        (("--check", "src"), "src is not a site of torchreel"),
    ],
)
def test_sentences(torchreel: Torchreel, source: Path, arguments: tuple[str, ...], sentence: str) -> None:
    outcome = torchreel("atlas", *arguments)
    assert outcome.code == 1 and sentence in outcome.err and outcome.err.count("\n") == 1
    assert not Path("site").exists()


def test_what_was_left_out_is_said(torchreel: Torchreel, source: Path) -> None:
    with Path("src/large.py").open("wb") as stream:
        stream.truncate(17 << 20)
    outcome = torchreel("atlas", "-o", "site", "--source", "src", "--jobs", "1")
    assert (outcome.code, outcome.err) == (0, "Left out: large.py: larger than 16 MiB\n")
