from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.export_formats import EVERY_FORMAT
from torchreel.errors import CorruptReelError, OptionError
from torchreel.export import export

from .reels import ProcessBuilder, build, training_step


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    reel = build(tmp_path / "r.reel", ProcessBuilder("a-1", 1))
    with pytest.raises(OptionError, match=r"There is no format 'pdf' to export to: choose one of chrome, perfetto"):
        export(reel, tmp_path / "x", "pdf")


@pytest.mark.parametrize("to", EVERY_FORMAT)
def test_every_format_reports_its_progress_and_compresses(tmp_path: Path, to: str) -> None:
    process = ProcessBuilder("a-1", 1)
    training_step(process)
    reel = build(tmp_path / "r.reel", process)
    seen: list[tuple[int, int]] = []
    export(reel, tmp_path / "plain", to, lambda done, total: seen.append((done, total)))
    export(reel, tmp_path / "packed.gz", to)
    assert seen[-1] == (7, 7)
    plain = (tmp_path / "plain").read_bytes().replace(b'"traceName": "plain"', b'"traceName": "packed.gz"')
    assert gzip.decompress((tmp_path / "packed.gz").read_bytes()) == plain


@pytest.mark.parametrize("to", EVERY_FORMAT)
def test_a_reel_without_anything_can_be_exported(tmp_path: Path, to: str) -> None:
    export(build(tmp_path / "none.reel"), tmp_path / "none", to)
    export(build(tmp_path / "idle.reel", ProcessBuilder("a-1", 1)), tmp_path / "idle", to)
    if to in ("chrome", "speedscope"):
        json.loads((tmp_path / "none").read_text())
        json.loads((tmp_path / "idle").read_text())


@pytest.mark.parametrize("to", EVERY_FORMAT)
def test_a_damaged_reel_is_named_and_leaves_no_file(tmp_path: Path, to: str) -> None:
    process = ProcessBuilder("a-1", 1)
    training_step(process)
    reel = build(tmp_path / "r.reel", process)
    ops = tmp_path / "r.reel" / "a-1" / "ops.parquet"
    ops.write_bytes(ops.read_bytes()[:100])
    with pytest.raises(CorruptReelError, match=r"r\.reel/a-1/ops\.parquet ends after 100 bytes"):
        export(reel, tmp_path / "out", to)
    assert [path.name for path in tmp_path.iterdir()] == ["r.reel"]


def test_exporting_needs_no_torch() -> None:
    code = "import sys, torchreel.export; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_option_that_a_format_has_not_is_refused(tmp_path: Path) -> None:
    reel = build(tmp_path / "r.reel", ProcessBuilder("a-1", 1))
    with pytest.raises(OptionError, match="'chrome' has no option 'budget': it has none"):
        export(reel, tmp_path / "x", "chrome", budget=5)
    with pytest.raises(OptionError, match="'html' has no option 'color': it has budget, sources, other"):
        export(reel, tmp_path / "x", "html", color="red")
