"""The build: a site that is whole, and the same from whatever state it was made."""

from __future__ import annotations

import json
import os
import random
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.atlas.sites import TREE, made, pages, rows, written
from torchreel.atlas import tables, tree
from torchreel.atlas.generate import pool
from torchreel.atlas.generate.build import build
from torchreel.atlas.generate.reader import Task
from torchreel.atlas.site.links import check
from torchreel.errors import AtlasError, OptionError


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tree and its site; not to be changed."""
    folder = tmp_path_factory.mktemp("first")
    root, site = written(folder / "root"), folder / "site"
    made(root, site)
    return root, site


def test_every_file_and_folder_has_its_page(first: tuple[Path, Path]) -> None:
    found = set(pages(first[1]))
    assert {f"files/r/{path}.html" for path in TREE} == {path for path in found if path.startswith("files/")}
    assert {f"md/r/{path}.md" for path in TREE} == {path for path in found if path.startswith("md/")}
    assert {path for path in found if path.startswith("folders/")} == {
        f"folders/r/{folder}index.html" for folder in ("", "pkg/", "tests/", "native/")
    }
    assert {"atlas.json", "index.html", "search.html", "llms.txt", "keywords/L.html", "search/files.js"} <= found
    assert {path.name for path in (first[1] / "data").iterdir()} == {f"{name}.parquet" for name in tables.TABLES}


def test_names_lead_to_their_definitions(first: tuple[Path, Path]) -> None:
    page = (first[1] / "files/r/pkg/layers.py.html").read_text()
    assert '<a href="tools.py.html#d.helper">helper</a>' in page
    page = (first[1] / "files/r/tests/test_layers.py.html").read_text()
    assert '<a href="../pkg/layers.py.html#d.Linear">Linear</a>' in page
    assert "test_layers.py" in (first[1] / "files/r/pkg/__init__.py.html").read_text()


def test_tables_say_the_same(first: tuple[Path, Path]) -> None:
    site = first[1]
    files = {row["id"]: row for row in tables.read(site, "files").to_pylist()}
    assert {row["path"] for row in files.values()} == set(TREE)
    assert all(row["self_ns"] is None and row["calls"] is None for row in files.values()), "nothing was recorded"
    imports = {
        (files[row["file"]]["path"], row["target"], files[row["to"]]["path"] if row["to"] is not None else None)
        for row in tables.read(site, "imports").to_pylist()
    }
    assert ("native/kernel.cpp", "kernel.h", "native/kernel.h") in imports
    assert ("tests/test_layers.py", "pkg.Linear", "pkg/__init__.py") in imports
    assert ("pkg/__init__.py", ".layers.Linear", "pkg/layers.py") in imports
    assert tables.read(site, "lines").num_rows == tables.read(site, "line_ops").num_rows == 0


def test_a_second_run_reads_and_writes_nothing(first: tuple[Path, Path], tmp_path: Path) -> None:
    root, site = tmp_path / "root", tmp_path / "site"
    shutil.copytree(first[0], root)
    made(root, site)
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*.html")}
    built = made(root, site)
    assert (built.read, built.written, built.files) == (0, 0, len(TREE))
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*.html")} == before


def test_moved_lines_touch_no_page_that_only_links_there(tmp_path: Path) -> None:
    root, site = written(tmp_path / "root"), tmp_path / "site"
    made(root, site)
    tools = root / "pkg/tools.py"
    tools.write_text("\n\n\n" + tools.read_text())
    before = pages(site)
    built = made(root, site)
    assert built.read == 1
    changed = {path for path, data in pages(site).items() if before.get(path) != data}
    assert "files/r/pkg/tools.py.html" in changed
    assert "files/r/pkg/layers.py.html" not in changed


def test_a_change_that_size_and_times_do_not_show_is_found(tmp_path: Path) -> None:
    root, site = written(tmp_path / "root"), tmp_path / "site"
    made(root, site)
    tools = root / "pkg/tools.py"
    before = tools.stat()
    tools.write_text(tools.read_text().replace("LIMIT", "LIMUT"))
    os.utime(tools, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert made(root, site).read > 0
    assert "LIMUT" in (site / "files/r/pkg/tools.py.html").read_text()


def test_files_that_rest_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, site = written(tmp_path / "root"), tmp_path / "site"
    made(root, site)
    monkeypatch.setattr(tree, "_GRAIN_NS", 0)  # as if the files were old
    made(root, site)  # now their stamps are known
    read: list[str] = []
    content = tree.content
    monkeypatch.setattr(tree, "content", lambda source: read.append(source.path) or content(source))
    assert made(root, site).read == 0 and read == []
    (root / "pkg/tools.py").write_text((root / "pkg/tools.py").read_text())
    assert made(root, site).read == 0 and read == ["pkg/tools.py"]


def test_a_folder_that_becomes_a_package_changes_what_its_files_mean(tmp_path: Path) -> None:
    texts = {"a/b.py": "from .c import f\n\nf()\n", "a/c.py": "def f(): ...\n"}
    root, site = written(tmp_path / "root", texts), tmp_path / "site"
    made(root, site)
    written(root, {"a/__init__.py": ""})
    made(root, site)
    made(root, tmp_path / "fresh")
    assert _without_about(pages(site)) == _without_about(pages(tmp_path / "fresh"))
    assert rows(site) == rows(tmp_path / "fresh")


def test_pages_of_files_that_are_gone_go_when_the_last_run_is_not_known(tmp_path: Path) -> None:
    root, site = written(tmp_path / "root"), tmp_path / "site"
    made(root, site)
    shutil.rmtree(root / "native")
    (site / "build.msgpack").unlink()
    made(root, site)
    left = {path for path in pages(site) if "native" in path}
    assert left == set()


Texts = dict[str, str]


def _rename(texts: Texts, rng: random.Random) -> None:
    for path in ("pkg/tools.py", "pkg/layers.py"):
        texts[path] = texts.get(path, "").replace("helper", f"helper{rng.randrange(3)}")


def _move_lines(texts: Texts, rng: random.Random) -> None:
    texts["pkg/layers.py"] = "\n" * rng.randrange(1, 4) + texts.get("pkg/layers.py", "")


def _add_importer(texts: Texts, rng: random.Random) -> None:
    texts[f"pkg/new{rng.randrange(4)}.py"] = "from .layers import Linear\n\nLinear.forward\n"


def _add_namesake(texts: Texts, rng: random.Random) -> None:
    texts[f"new{rng.randrange(3)}/helper.py"] = "def helper(): ...\n\n\nhelper()\n"


def _remove(texts: Texts, rng: random.Random) -> None:
    if len(texts) > 3:
        del texts[rng.choice(sorted(texts))]


def _restore(texts: Texts, rng: random.Random) -> None:
    texts.update(rng.sample(sorted(TREE.items()), 2))


def _hand_on_other_names(texts: Texts, rng: random.Random) -> None:
    texts["pkg/__init__.py"] = rng.choice(["", "from .layers import *\n", TREE["pkg/__init__.py"]])


def _change_a_header(texts: Texts, rng: random.Random) -> None:
    texts["native/kernel.h"] = TREE["native/kernel.h"] + f"struct More{rng.randrange(9)};\n"


def _use_rare_words(texts: Texts, rng: random.Random) -> None:
    texts[f"many{rng.randrange(9)}.py"] = f"import pkg.tools\n\npkg.tools.LIMIT\nword{rng.randrange(9)}.common_word\n"


EDITS = (
    _rename,
    _move_lines,
    _add_importer,
    _add_namesake,
    _remove,
    _restore,
    _hand_on_other_names,
    _change_a_header,
    _use_rare_words,
)


@pytest.mark.parametrize("seed", range(3))
def test_many_small_runs_make_the_site_that_one_run_makes(tmp_path: Path, seed: int) -> None:
    _hold_small_runs(tmp_path, seed, 6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_more_small_runs(tmp_path: Path, seed: int) -> None:
    _hold_small_runs(tmp_path, seed, 25)


def _hold_small_runs(folder: Path, seed: int, runs: int) -> None:
    """Edit at random, bring the site up to date, and compare with one that is made from nothing."""
    rng = random.Random(seed)
    root, site, fresh = folder / "root", folder / "site", folder / "fresh"
    texts = dict(TREE)
    for run in range(runs):
        shutil.rmtree(root, ignore_errors=True)
        made(written(root, texts), site)
        shutil.rmtree(fresh, ignore_errors=True)
        made(root, fresh)
        assert _without_about(pages(site)) == _without_about(pages(fresh)), f"seed {seed}, run {run}"
        assert rows(site) == rows(fresh), f"seed {seed}, run {run}"
        for _ in range(rng.randrange(1, 4)):
            rng.choice(EDITS)(texts, rng)


def _without_about(found: dict[str, bytes]) -> dict[str, bytes]:
    """atlas.json lists files in the order in which they came."""
    about = json.loads(found.pop("atlas.json"))
    return {**found, "about": json.dumps(about, sort_keys=True).encode()}


def test_processes_make_the_same_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    texts = {f"part{number}/{path}": text for number in range(5) for path, text in TREE.items()}
    written(root, texts)
    made(root, tmp_path / "one")
    monkeypatch.setattr(pool, "LITTLE", 0)
    made(root, tmp_path / "two", jobs=2)
    assert _without_about(pages(tmp_path / "one")) == _without_about(pages(tmp_path / "two"))
    assert rows(tmp_path / "one") == rows(tmp_path / "two")


def test_a_reader_that_is_killed_is_started_again(tmp_path: Path) -> None:
    root = written(tmp_path / "root")
    tasks = [Task(number, "r", str(root), path, "python") for number, path in enumerate(TREE) if path.endswith(".py")]
    workers = pool.Processes(tmp_path / "site", 1)
    found = {}
    try:
        workers.read(tasks[:2], lambda task, facts: found.update({task.path: facts}))
        workers._workers[0]._process.kill()
        workers.read(tasks[2:], lambda task, facts: found.update({task.path: facts}))
        assert set(found) == {task.path for task in tasks}
        # The file that was to be read next counts as the one that ended the process: its structure is not known.
        assert [path for path, facts in found.items() if facts.errors] == [tasks[2].path]
        workers.know([], {}, 0)
    finally:
        workers.close()


class TestFolders:
    def test_of_other_files_are_left_alone(self, tmp_path: Path) -> None:
        root, site = written(tmp_path / "root"), tmp_path / "site"
        site.mkdir()
        (site / "precious").write_text("mine")
        with pytest.raises(AtlasError, match="holds other files"):
            build(site, sources={"r": root}, jobs=1)
        assert [path.name for path in site.iterdir()] == ["precious"]
        made(root, site, force=True)
        assert (site / "precious").read_text() == "mine"

    def test_a_site_in_its_own_root_is_not_read(self, tmp_path: Path) -> None:
        root = written(tmp_path / "root")
        made(root, root / "docs/site")
        built = made(root, root / "docs/site")
        assert (built.files, built.written) == (len(TREE), 0)
        other = made(root, root / "other")
        assert other.files == len(TREE)

    def test_a_root_or_a_site_cannot_be_the_site(self, tmp_path: Path) -> None:
        root = written(tmp_path / "root")
        with pytest.raises(AtlasError, match="is the source 'r' itself"):
            build(root, sources={"r": root})
        made(root, tmp_path / "site")
        with pytest.raises(AtlasError, match="is a site of torchreel, not a source"):
            build(tmp_path / "again", sources={"r": tmp_path / "site"})
        with pytest.raises(OptionError, match="nothing to read"):
            build(tmp_path / "again")
        with pytest.raises(OptionError, match="give the reel"):
            build(tmp_path / "again", sources={"r": root}, executed=True)

    def test_a_run_that_was_ended_can_be_made_again(self, tmp_path: Path) -> None:
        root, site = written(tmp_path / "root"), tmp_path / "site"

        def interrupt(what: str, done: int, of: int) -> None:
            if what == "Writing pages":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            build(site, sources={"r": root}, jobs=1, progress=interrupt)
        assert any("not whole" in problem for problem in check(site).problems)
        made(root, site)

    @pytest.mark.parametrize("damage", [b"", b"\x00\xff", b"\x81"])
    def test_a_damaged_state_means_that_all_is_made_anew(self, tmp_path: Path, damage: bytes) -> None:
        root, site = written(tmp_path / "root"), tmp_path / "site"
        made(root, site)
        (site / "build.msgpack").write_bytes(damage)
        assert made(root, site).read == len(TREE)


def test_a_missing_page_is_found(tmp_path: Path) -> None:
    root, site = written(tmp_path / "root"), tmp_path / "site"
    made(root, site)
    (site / "files/r/pkg/tools.py.html").unlink()
    assert any("tools.py.html" in problem for problem in check(site).problems)
    made(root, site, force=True)
    (site / "data/keywords.parquet").write_bytes(b"PAR1")
    assert any("keywords" in problem for problem in check(site).problems)


HOSTILE = {
    "not_utf8.py": b"x = '\xff\xfe'\n# \x80",
    "nul.py": b"a\x00b = 1\n",
    "syntax.py": b"def broken(:\n  ((((\nclass Found: pass\n",
    "brackets.py": b"(" * 5_000,
    "brackets.cpp": b"{" * 5_000 + b"<" * 5_000,
    "long.py": b"x = '" + b"a" * 1_000_000 + b"'\n",
    "long.cpp": b"int x = " + b"1+" * 500_000 + b"1;\n",
    "minus.py": b"-" * 100_000 + b"1",
    "script.py": b'"""</script><script>alert(1)</script>"""\nx = "</pre><img src=x onerror=alert(2)>"\n',
    "</script><img src=x onerror=alert(3)>.py": b'"""A name."""\n',
    "a b&c'\"#?%.py": b"def f(): ...\n",
    "index": b"not a source",
    "index.html": b"<script>alert(4)</script>",
    "a.py": b"y = 1\n",
    "a.py.html/b.py": b"z = 1\n",
    "fence.md": b"# A\n\n```\n````\n`````\n",
    "ctrl.py": b"a = '\x01\x02\x03\x1b'\n",
    "empty.py": b"",
    "\xc3\xbc/\xe4\xb8\xad.py".encode("latin-1").decode("utf-8"): "中 = 'ü\u2028'\n".encode(),
    "n" * 240 + ".py": b"x = 1\n",
}


class Live(HTMLParser):
    """Fails at what a browser would run or load."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert tag not in ("img", "iframe", "object", "embed", "style")
        assert tag != "script" or (given.get("src") or "").startswith(("assets/", "../", "search/"))
        assert not [name for name in given if name.startswith("on") or name == "style"]


def test_a_hostile_tree_makes_a_site_in_which_nothing_of_it_is_live(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for path, data in HOSTILE.items():
        file = root / path.replace("</script>", "<-script>")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (root / os.fsdecode(b"\xff.py")).write_bytes(b"x = 1\n")
    os.mkfifo(root / "pipe.py")
    (root / "loop").symlink_to(root)
    (root / "out.py").symlink_to("/etc/passwd")
    built = made(root, tmp_path / "site")
    assert built.files == len(HOSTILE) - 1  # `index` is none
    assert built.left_out == ["\\xff.py: its name is not UTF-8"]
    for path, data in pages(tmp_path / "site").items():
        assert b"root:x:0" not in data
        if path.endswith(".html"):
            Live().feed(data.decode())
    assert made(root, tmp_path / "site").written == 0


@pytest.mark.parametrize("seed", range(2))
def test_random_bytes_make_a_site(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    root = tmp_path / "root"
    root.mkdir()
    words = [
        b"class ",
        b"def ",
        b"{",
        b"}",
        b"(",
        b")",
        b'"""',
        b"'",
        b"\n",
        b"#include <",
        b"import ",
        b"\\",
        b"\x00",
        b"\xff",
    ]
    for ending in ("py", "cpp", "h", "yaml", "md", "cu", "cmake"):
        for number in range(4):
            data = b"".join(rng.choice(words) if rng.random() < 0.7 else rng.randbytes(3) for _ in range(300))
            (root / f"f{number}.{ending}").write_bytes(data)
    made(root, tmp_path / "site")
