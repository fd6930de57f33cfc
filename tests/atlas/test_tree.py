"""Which files are read: those below the roots, and nothing that leads out of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchreel.atlas import tree
from torchreel.errors import AtlasError, OptionError


def scanned(root: Path, site: Path, *exclude: str) -> list[str]:
    return [source.path for source in tree.scan(tree.roots_of({"r": root}), site, exclude).sources]


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")


def test_sources_are_found_by_path_and_the_rest_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "r"
    write(root, "b.py", "a/c.cpp", "a/d.cu", "e.yaml", "f.png", "g", ".hidden/h.py", "__pycache__/i.py")
    write(root, "node_modules/j.py", "run.reel/k.py", "venv/pyvenv.cfg", "venv/l.py", "m.h.in", "CMakeLists.txt")
    assert scanned(root, tmp_path / "site") == ["CMakeLists.txt", "a/c.cpp", "a/d.cu", "b.py", "e.yaml", "m.h.in"]
    assert scanned(root, tmp_path / "site", "a/*", "*.yaml") == ["CMakeLists.txt", "b.py", "m.h.in"]


def test_a_site_is_never_a_source(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "site/md/a.md", "site/atlas.json", "other/b.py", "here/c.py")
    assert scanned(tmp_path, tmp_path / "here") == ["a.py", "other/b.py"]


def test_links_devices_and_pipes_are_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "r", tmp_path / "outside"
    write(root, "a.py")
    write(outside, "secret.py")
    (root / "out.py").symlink_to(outside / "secret.py")
    (root / "folder").symlink_to(outside)
    (root / "loop").symlink_to(root)
    (root / "zero.py").symlink_to("/dev/zero")
    os.mkfifo(root / "pipe.py")
    assert scanned(root, tmp_path / "site") == ["a.py"]
    for name in ("out.py", "zero.py", "pipe.py"):  # also if they come to be there after the scan
        source = tree.Source(tree.roots_of({"r": root})[0], name, "python")
        assert tree.content(source) is None


def test_a_root_inside_another_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "inner/b.py")
    roots = tree.roots_of({"outer": tmp_path, "inner": tmp_path / "inner"})
    found = tree.scan(roots, tmp_path / "site").sources
    assert [(source.root.name, source.path) for source in found] == [("outer", "a.py"), ("inner", "b.py")]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = b"\xff\xfe.py"
    (tmp_path / os.fsdecode(name)).write_text("x = 1\n")
    found = tree.scan(tree.roots_of({"r": tmp_path}), tmp_path / "site")
    assert found.sources == []
    assert found.left_out == ["\\xff\\xfe.py: its name is not UTF-8"]


def test_a_file_that_is_too_large_is_said(tmp_path: Path) -> None:
    with (tmp_path / "large.py").open("wb") as stream:
        stream.truncate(tree.MOST_BYTES + 1)
    found = tree.scan(tree.roots_of({"r": tmp_path}), tmp_path / "site")
    assert found.sources == []
    assert found.left_out == ["large.py: larger than 16 MiB"]


def test_roots_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="is not a folder"):
        tree.roots_of({"r": tmp_path / "none"})
    with pytest.raises(OptionError, match="has no slash"):
        tree.roots_of({"a/b": tmp_path})
    with pytest.raises(OptionError, match="name it once"):
        tree.roots_of({"a": tmp_path, "b": tmp_path})


@pytest.mark.parametrize(
    ("data", "language", "text"),
    [
        (b"a\r\nb\rc\n", "c++", "a\nb\nc\n"),
        (b"\xef\xbb\xbfx", "c++", "x"),
        (b"\xff\x00", "text", "\\xff\\x00"),
        ("# coding: latin-1\nä".encode("latin-1"), "python", "# coding: latin-1\nä"),
        (b"\xff = 1", "python", "\\xff = 1"),
    ],
)
def test_texts(data: bytes, language: str, text: str) -> None:
    assert tree.text(data, language) == text


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\n\nb", 3)])
def test_lines_are_counted(text: str, lines: int) -> None:
    assert tree.line_count(text) == lines


class TestCommit:
    COMMIT = "0123456789abcdef0123456789abcdef01234567"

    def test_of_a_branch(self, tmp_path: Path) -> None:
        (tmp_path / ".git/refs/heads").mkdir(parents=True)
        (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (tmp_path / ".git/refs/heads/main").write_text(self.COMMIT + "\n")
        (tmp_path / "src").mkdir()
        assert tree.commit_of(tmp_path / "src") == self.COMMIT

    def test_of_packed_refs_and_of_a_detached_head(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (tmp_path / ".git/packed-refs").write_text(f"# pack-refs\n{self.COMMIT} refs/heads/main\n")
        assert tree.commit_of(tmp_path) == self.COMMIT
        (tmp_path / ".git/HEAD").write_text(self.COMMIT)
        assert tree.commit_of(tmp_path) == self.COMMIT

    @pytest.mark.parametrize("head", ["ref: ../../secret", "ref: /etc/passwd", "nonsense", "ref: refs/heads/none"])
    def test_nothing_that_is_no_commit_is_shown(self, tmp_path: Path, head: str) -> None:
        (tmp_path / "secret").write_text("a secret")
        (tmp_path / "a/b/.git").mkdir(parents=True)
        (tmp_path / "a/b/.git/HEAD").write_text(head)
        assert tree.commit_of(tmp_path / "a/b") == ""
