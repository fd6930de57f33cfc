"""The file that an export writes: complete, or not there at all."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from torchreel.errors import OptionError, TorchreelError

# Called now and then with the number of ops written and the number in all.
Progress = Callable[[int, int], None]


def _check(path: Path) -> None:
    if path.is_dir():
        raise OptionError(f"{path} is a directory: name the file to write in it.")
    if not path.parent.is_dir():
        raise OptionError(f"{path} cannot be written because there is no directory {path.parent}: make it first.")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends well; `.gz` at the end compresses it.

    Until then it lies beside it under another name, so an error or a crash neither leaves half a file under the
    name that the user gave nor destroys an older file that has it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _check(path)
        with temporary.open("wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", mode="wb", compresslevel=5, fileobj=file, mtime=0) as compressed:
                    yield cast(BinaryIO, compressed)
            else:
                yield file
        temporary.replace(path)
    except OSError as error:
        raise TorchreelError(
            f"{path} could not be written ({error.strerror or error}): make room, or choose another path."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
