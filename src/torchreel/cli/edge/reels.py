"""The reels that `torchreel edge` writes: their names, which are taken while a model is measured."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchreel.cli.record import reel_path
from torchreel.errors import OptionError, ReelExistsError


def reel_names(output: Path | None, force: bool, count: int) -> list[Path | None]:
    """Names for as many reels: x.reel and x-2.reel beside it. None stands for the next that is free."""
    if output is None:
        return [None] * count
    if output.suffix != ".reel":
        raise OptionError(f"-o {output} is no name of a reel: let it end in .reel.")
    others = (output.with_name(f"{output.stem}-{number}{output.suffix}") for number in range(2, count + 1))
    return [reel_path(path, force) for path in (output, *others)]


@dataclass(frozen=True)
class _Room:
    """A directory that nobody else fills, and the reel that gave way to it, moved aside."""

    path: Path
    older: Path | None = None

    def keep(self) -> None:
        if self.older is not None:
            shutil.rmtree(self.older.parent)

    def give_back(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self.older is not None:
            self.older.rename(self.path)
            self.older.parent.rmdir()


@contextlib.contextmanager
def rooms(names: Sequence[Path | None]) -> Iterator[list[Path]]:
    """An empty directory of each name. After an error, or Ctrl-C, all is as it was before."""
    made: list[_Room] = []
    try:
        for name in names:
            made.append(_next_room() if name is None else _room(name))
        yield [room.path for room in made]
    except BaseException:
        for room in made:
            room.give_back()
        raise
    for room in made:
        room.keep()


def _next_room() -> _Room:
    """Two commands that run at the same time get two names: only one of them can make a directory."""
    while True:
        path = reel_path(None, force=False)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return _Room(path)


def _room(path: Path) -> _Room:
    older = None
    if path.exists():  # and was asked for with --force
        older = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent)) / path.name
        path.rename(older)
    try:
        path.mkdir()
    except FileNotFoundError:
        raise OptionError(f"{path} cannot be written because there is no directory {path.parent}: make it.") from None
    except FileExistsError:
        raise ReelExistsError(f"{path} was made by somebody else meanwhile: name another reel with -o.") from None
    return _Room(path, older)
