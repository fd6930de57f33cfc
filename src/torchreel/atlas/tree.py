"""Source trees: which files below the roots are read, and their bytes.

Only regular files below a root are. Symbolic links are not followed, wherever they lead; nor are devices and pipes.
Folders that hold what programs made are left out: hidden ones, caches, virtual environments, node_modules, reels, and
every folder with an `atlas.json`: a site is never a source.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchreel.atlas.read.languages import language_of
from torchreel.errors import AtlasError, OptionError
from torchreel.reel.source_files import digest_of, text_of

MOST_BYTES = 16 << 20  # of a file that is read
_GRAIN_NS = 4_000_000_000  # more than that of the coarsest clock of a file system, which is two seconds
_SKIPPED = {"__pycache__", "node_modules"}
# A folder that holds one of these was made by a program: a site, a virtual environment, a reel.
_MADE = ("atlas.json", "pyvenv.cfg")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Root:
    """A folder whose files are documented."""

    name: str
    directory: Path
    """Resolved: no part of it is a link."""
    named: str = ""
    """As it was named, made absolute: programs may know its files by such paths."""


@dataclass(frozen=True)
class Source:
    """A file of a root."""

    root: Root
    path: str
    """Below the root, with slashes."""
    language: str
    size: int = 0
    """In bytes, when it was found."""
    stamp: tuple[int, ...] = ()
    """What the file system says of it that cannot stay the same when it is written to: size, times and number. Empty
    for one that was changed so lately that a further change may not show."""

    @property
    def absolute(self) -> str:
        return f"{self.root.directory}/{self.path}"


@dataclass
class Tree:
    """The files of all roots, by root and path."""

    roots: list[Root]
    sources: list[Source] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """A sentence for each file that looks like a source and was not read."""


def roots_of(sources: Mapping[str, str | os.PathLike[str]]) -> list[Root]:
    """The roots by their names; each must be a folder, and no two the same."""
    roots: list[Root] = []
    for name, directory in sources.items():
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise OptionError(f"A source is named {name!r}: a name is not empty and has no slash.")
        path = Path(directory)
        if not path.is_dir():
            raise AtlasError(f"{path} is not a folder: name the folder of a source tree.")
        resolved = path.resolve()
        same = [root.name for root in roots if root.directory == resolved]
        if same:
            raise OptionError(f"{path} is named as source {name!r} and as {same[0]!r}: name it once.")
        roots.append(Root(name, resolved, str(path.absolute())))
    return roots


def scan(roots: Sequence[Root], site: Path, exclude: Sequence[str] = ()) -> Tree:
    """Find the files of the roots, without the site. `exclude` are patterns of paths below a root, or of names."""
    tree = Tree(list(roots))
    others = {root.directory for root in roots} | {site.resolve()}
    for root in roots:
        found = [
            Source(root, path, language, status.st_size, _stamp(status))
            for path, language, status in _files(root.directory, others - {root.directory}, exclude, tree.left_out)
        ]
        tree.sources += sorted(found, key=lambda source: source.path)
    return tree


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    """A file system's clock has a grain: of two changes within it the second leaves the times as they are."""
    now = time.time_ns()
    if any(abs(now - then) < _GRAIN_NS for then in (status.st_mtime_ns, status.st_ctime_ns)):
        return ()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


def content(source: Source) -> bytes | None:
    """The bytes of a file; None if it is no regular file any more, is too large, or cannot be read."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(source.absolute, flags)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
                return None
            data = stream.read()  # as much as the system says that there is, and what came since
    except (OSError, ValueError):
        return None
    return data if len(data) <= MOST_BYTES else None


def text(data: bytes, language: str) -> str:
    """A file's text, its lines apart by newlines alone."""
    decoded = text_of(data) if language == "python" else text_of_utf8(data)
    return decoded.replace("\r\n", "\n").replace("\r", "\n") if "\r" in decoded else decoded


def text_of_utf8(data: bytes) -> str:
    """UTF-8, with what is not UTF-8, and NUL, written as \\xff."""
    return data.decode("utf-8-sig", "backslashreplace").replace("\0", "\\x00")


def line_count(whole: str) -> int:
    return whole.count("\n") + (not whole.endswith("\n") and whole != "")


def digest(data: bytes) -> str:
    return digest_of(data)


def commit_of(directory: Path) -> str:
    """The commit that is checked out where a folder lies; empty if it is in no checkout. Runs no git."""
    for folder in (directory, *directory.parents):
        git = folder / ".git"
        try:
            if git.is_file():  # a work tree or a submodule names its folder
                named = git.read_text(errors="replace")[:4096].removeprefix("gitdir:").strip()
                git = folder / named
            if git.is_dir():
                return _head(git)
        except OSError:
            return ""
    return ""


def _head(git: Path) -> str:
    head = (git / "HEAD").read_text(errors="replace")[:4096].strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else ""
    name = head.removeprefix("ref:").strip()
    if ".." in name.split("/") or name.startswith("/"):
        return ""
    common = git / "commondir"
    shared = git / common.read_text(errors="replace").strip() if common.is_file() else git
    for folder in (git, shared):
        loose = folder / name
        if loose.is_file():
            value = loose.read_text(errors="replace")[:128].strip()
            return value if _COMMIT.fullmatch(value) else ""
    packed = shared / "packed-refs"
    if packed.is_file():
        for line in packed.read_text(errors="replace").splitlines():
            value, _, ref = line.partition(" ")
            if ref == name and _COMMIT.fullmatch(value):
                return value
    return ""


def _files(
    directory: Path, barred: set[Path], exclude: Sequence[str], left_out: list[str]
) -> Iterator[tuple[str, str, os.stat_result]]:
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(directory / folder))
        except OSError as error:
            left_out.append(f"{folder or '.'}: {error.strerror or error}")
            continue
        if folder and any(entry.name in _MADE for entry in entries):
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if _excluded(path, entry.name, exclude):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not _is_made(entry) and Path(entry.path) not in barred:
                    pending.append(path)
            elif (language := language_of(path)) is not None:
                status = _source_status(entry, path, left_out)
                if status is not None:
                    yield path, language, status


def _is_made(entry: os.DirEntry[str]) -> bool:
    return entry.name.startswith(".") or entry.name in _SKIPPED or entry.name.endswith((".reel", ".egg-info"))


def _source_status(entry: os.DirEntry[str], path: str, left_out: list[str]) -> os.stat_result | None:
    """What the file system says of a file that is read; None of one that is not."""
    if entry.is_symlink():
        return None
    if not path.isascii() and any("\ud800" <= character <= "\udfff" for character in path):
        left_out.append(f"{os.fsencode(path).decode('utf-8', 'backslashreplace')}: its name is not UTF-8")
        return None
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_size > MOST_BYTES:
        left_out.append(f"{path}: larger than {MOST_BYTES >> 20} MiB")
        return None
    return status


def _excluded(path: str, name: str, exclude: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in exclude)
