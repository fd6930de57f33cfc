"""A site with a run: sums that are exact, the sources that may be read, and nothing else of this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow.compute as pc
import pytest

import torchreel
from tests.atlas.sites import pages
from tests.synthetic import Call, Process, call, write_reel
from torchreel.atlas import tables
from torchreel.atlas.generate.build import build
from torchreel.atlas.site.links import check
from torchreel.errors import AtlasError

TRAIN = "from model import forward\n\n\ndef main():\n    return forward(1)\n\n\nmain()\n"
MODEL = '"""The model."""\n\n\ndef forward(x):\n    y = x + 1\n    return y * 2\n\n\ndef idle():\n    pass\n'


def program(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "model.py").write_text(MODEL)
    return folder


def calls(folder: Path, *more: tuple[str, int, str]) -> list[Call]:
    """A forward call of two ops on two lines of the model, and the backward of one of them."""
    outer = ((f"{folder}/train.py", 5, "main"), (f"{folder}/train.py", 8, "<module>"))
    add = (*more, (f"{folder}/model.py", 5, "forward"), *outer)
    mul = ((f"{folder}/model.py", 6, "forward"), *outer)
    return [
        call(
            "aten::add", 100, call("aten::empty", 10, stack=add), stack=add, overload="Tensor", bytes=64, inputs="[[2]]"
        ),
        call("aten::mul", 200, stack=mul, overload="Tensor", flops=4),
        call("MulBackward0", 7, call("aten::mul", 300, stack=mul, overload="Tensor"), kind="backward", stack=mul),
        call("nn.Module: Net", 5, kind="module"),
    ]


def recorded(folder: Path, reel: Path, listed: list[Call] | None = None, hashes: dict[str, str] | None = None) -> Path:
    process = Process({"MainThread": listed if listed is not None else calls(folder)})
    process.sources = [
        {
            "path": f"{folder}/{name}",
            "bytes": len(text),
            "sha256": (hashes or {}).get(name, hashlib.sha256(text.encode()).hexdigest()),
            "text": text,
        }
        for name, text in (("train.py", TRAIN), ("model.py", MODEL))
    ]
    return write_reel(reel, process)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = program(tmp_path / "program")
    build(tmp_path / "site", recorded(folder, tmp_path / "run.reel"), jobs=1)
    assert check(tmp_path / "site").problems == []
    return tmp_path / "site"


def test_the_root_is_the_folder_of_the_script(site: Path) -> None:
    assert {path for path in pages(site) if path.startswith("files/")} == {
        "files/program/train.py.html",
        "files/program/model.py.html",
    }


def test_costs_of_lines_symbols_and_files(site: Path) -> None:
    files = {row["path"]: row for row in tables.read(site, "files").to_pylist()}
    model = files["model.py"]
    assert (model["calls"], model["self_ns"], model["forward_ns"], model["backward_ns"]) == (5, 617, 310, 307)
    assert (model["total_ns"], model["alloc_bytes"], model["flops"]) == (617, 64, 4)
    assert (files["train.py"]["self_ns"], files["train.py"]["total_ns"]) == (0, 617)
    lines = {(row["file"], row["line"]): row for row in tables.read(site, "lines").to_pylist()}
    assert lines[model["id"], 5]["self_ns"] == 110
    assert (lines[model["id"], 6]["forward_ns"], lines[model["id"], 6]["backward_ns"]) == (200, 307)
    symbols = {row["name"]: row for row in tables.read(site, "symbols").to_pylist()}
    assert (symbols["forward"]["self_ns"], symbols["main"]["total_ns"], symbols["idle"]["self_ns"]) == (617, 617, 0)


def test_sums_are_those_of_the_ops(site: Path, tmp_path: Path) -> None:
    ops = torchreel.load(tmp_path / "run.reel").ops
    with_stack = pc.sum(ops["self_ns"].filter(pc.is_valid(ops["stack"]))).as_py()
    assert with_stack == 617
    for name in ("lines", "line_ops"):
        assert pc.sum(tables.read(site, name)["self_ns"]).as_py() == with_stack


def test_pages_of_the_run(site: Path) -> None:
    tour = (site / "tour.html").read_text()
    assert tour.index("train.py") < tour.index("model.py")
    op = (site / "ops/aten/mul.html").read_text()
    assert "model.py:6" in op and 'href="../../files/program/model.py.html#L6"' in op
    page = (site / "files/program/model.py.html").read_text()
    assert 'href="../../ops/aten/mul.html"' in page
    assert "617 ns" in page


def test_a_file_that_changed_since_is_said(site: Path, tmp_path: Path) -> None:
    (tmp_path / "program/model.py").write_text(MODEL + "\n# more\n")
    build(tmp_path / "site", tmp_path / "run.reel", {"program": tmp_path / "program"}, jobs=1)
    assert "Changed since recorded" in (site / "files/program/model.py.html").read_text()
    assert "Changed since recorded" not in (site / "files/program/train.py.html").read_text()


def test_another_reel_means_other_costs_everywhere(site: Path, tmp_path: Path) -> None:
    other = recorded(tmp_path / "program", tmp_path / "other.reel", calls(tmp_path / "program")[:1])
    build(site, other, {"program": tmp_path / "program"}, jobs=1)
    assert check(site).problems == []
    fresh = tmp_path / "fresh"
    build(fresh, other, {"program": tmp_path / "program"}, jobs=1)
    assert pages(fresh) == pages(site)


def test_a_reel_without_stacks_says_what_to_record(tmp_path: Path) -> None:
    folder = program(tmp_path / "program")
    reel = write_reel(tmp_path / "run.reel", Process({"MainThread": [call("aten::add", 100)]}))
    build(tmp_path / "site", reel, {"program": folder}, jobs=1)
    assert check(tmp_path / "site").problems == []
    assert "--stacks" in (tmp_path / "site/index.html").read_text()
    assert tables.read(tmp_path / "site", "files")["self_ns"].to_pylist() == [None, None]
    with pytest.raises(AtlasError, match="record it with --stacks"):
        build(tmp_path / "other", reel, jobs=1)


class TestForeignReels:
    """A reel from elsewhere names paths of its own choice."""

    SECRET = "password = 'a secret that nobody may publish'\n"

    def test_files_outside_the_roots_are_not_published(self, tmp_path: Path) -> None:
        folder = program(tmp_path / "program")
        (tmp_path / "secret.py").write_text(self.SECRET)
        listed = calls(folder, (f"{tmp_path}/secret.py", 1, "<module>"), (f"{folder}/../secret.py", 1, "<module>"))
        build(tmp_path / "site", recorded(folder, tmp_path / "run.reel", listed), {"program": folder}, jobs=1)
        assert all(b"a secret" not in data for data in pages(tmp_path / "site").values())
        rows = tables.read(tmp_path / "site", "lines").to_pylist()
        assert [row["file"] for row in rows if row["path"] == f"{tmp_path}/secret.py"] == [None]

    def test_a_folder_is_read_only_if_the_reel_knows_a_file_of_it(self, tmp_path: Path) -> None:
        folder = program(tmp_path / "program")
        wrong = recorded(folder, tmp_path / "run.reel", hashes={"train.py": "0" * 64, "model.py": "1" * 64})
        with pytest.raises(AtlasError, match="name the folder to read with --source"):
            build(tmp_path / "site", wrong, jobs=1)
        assert not (tmp_path / "site").exists()

    def test_markup_in_every_name_is_text(self, tmp_path: Path) -> None:
        folder = program(tmp_path / "program")
        evil = "</script><img src=x onerror=alert(1)>"
        stack = ((f"{folder}/model.py", 5, evil), (f"/{evil}.py", 1, evil))
        listed = [call(f"{evil}::{evil}", 1, stack=stack, overload=evil, inputs=f'["{evil}"]')]
        build(tmp_path / "site", recorded(folder, tmp_path / "run.reel", listed), {"program": folder}, jobs=1)
        assert check(tmp_path / "site").problems == []
        for path, data in pages(tmp_path / "site").items():
            assert b"<img" not in data or not path.endswith(".html"), path


def test_only_files_that_the_run_entered(tmp_path: Path) -> None:
    folder = program(tmp_path / "program")
    (folder / "unused.py").write_text("x = 1\n")
    reel = recorded(folder, tmp_path / "run.reel")
    built = build(tmp_path / "site", reel, {"p": folder}, executed=True, jobs=1)
    assert built.files == 2
    assert check(tmp_path / "site").problems == []


def test_a_root_may_be_named_by_a_link(tmp_path: Path) -> None:
    folder = program(tmp_path / "program")
    (tmp_path / "link").symlink_to(folder)
    reel = recorded(tmp_path / "link", tmp_path / "run.reel")
    build(tmp_path / "site", reel, {"p": tmp_path / "link"}, jobs=1)
    assert {row["path"]: row["total_ns"] for row in tables.read(tmp_path / "site", "files").to_pylist()} == {
        "train.py": 617,
        "model.py": 617,
    }


def test_a_function_with_the_name_of_a_kernel_is_none_outside_of_torchs_namespace(tmp_path: Path) -> None:
    folder = program(tmp_path / "program")
    stack = ((f"{folder}/model.py", 5, "forward"),)
    reel = recorded(folder, tmp_path / "run.reel", [call("aten::relu", 70, stack=stack)])
    (folder / "mine.cpp").write_text("namespace mine {\nint relu(int x) {\n  return x;\n}\n}\nint relu(long x) {}\n")
    build(tmp_path / "site", reel, {"program": folder}, jobs=1)
    assert _kernel_of_relu(tmp_path / "site") == (None, None)
    assert {row["self_ns"] for row in _of_file(tmp_path / "site", "mine.cpp")} == {None}
    (folder / "native.cpp").write_text("namespace at::native {\n\nint relu(int x) {\n  return x;\n}\n}\n")
    build(tmp_path / "site", reel, {"program": folder}, jobs=1)
    assert _kernel_of_relu(tmp_path / "site") == ("native.cpp", 3)
    assert {row["self_ns"] for row in _of_file(tmp_path / "site", "mine.cpp")} == {None}


def _kernel_of_relu(site: Path) -> tuple[str | None, int | None]:
    files = {row["id"]: row["path"] for row in tables.read(site, "files").to_pylist()}
    [row] = [row for row in tables.read(site, "operators").to_pylist() if row["name"] == "aten::relu"]
    return files.get(row["kernel_file"]), row["kernel_line"]


def _of_file(site: Path, path: str) -> list[dict[str, object]]:
    """The symbols of a file."""
    [file] = [row["id"] for row in tables.read(site, "files").to_pylist() if row["path"] == path]
    return [row for row in tables.read(site, "symbols").to_pylist() if row["file"] == file]
