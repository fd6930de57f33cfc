"""Where an export goes: a file that is complete or not there at all, or a stream that somebody else opened."""

from __future__ import annotations

import codecs
import gzip
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeAlias, cast

from torchreel.errors import OptionError, TorchreelError

# Called now and then with the number of ops written and the number in all.
Progress = Callable[[int, int], None]

# A path, or an open stream of bytes or, for formats that are text, of text.
Target: TypeAlias = Path | IO[Any]


def target_of(output: str | os.PathLike[str] | IO[Any]) -> Target:
    """What the user gave, as a path or a stream that can be written."""
    if not hasattr(output, "write"):
        try:
            return Path(cast(str, output))
        except TypeError:
            raise OptionError(
                f"An export goes to a path or to an open stream, and {type(output).__name__} is neither: "
                "give a name, or an object with write()."
            ) from None
    stream = cast(IO[Any], output)
    if getattr(stream, "closed", False):
        raise OptionError("The stream to export to is closed: open it again.")
    if hasattr(stream, "writable") and not stream.writable():
        raise OptionError("The stream to export to is open for reading only: open it with mode 'wb'.")
    return stream


def name_of(target: Target) -> str:
    """The name of the file, as far as there is one."""
    if isinstance(target, Path):
        return target.name
    name = getattr(target, "name", "")
    return Path(name).name if isinstance(name, str) else ""


def _check(path: Path) -> None:
    if path.is_dir():
        raise OptionError(f"{path} is a directory: name the file to write in it.")
    if not path.parent.is_dir():
        raise OptionError(f"{path} cannot be written because there is no directory {path.parent}: make it first.")


@contextmanager
def writing(target: Target, text: bool = True) -> Iterator[BinaryIO]:
    """The binary file of a target, into which the block writes; `text` says that all of it is UTF-8."""
    if isinstance(target, Path):
        with replacing(target) as file:
            yield file
        return
    stream = _Stream(target, text)
    yield cast(BinaryIO, stream)
    stream.finish()


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


class _Stream:
    """Writes bytes to a stream of the user's, which stays open: all of them, or an error says why not."""

    def __init__(self, stream: IO[Any], text: bool) -> None:
        self._stream = stream
        self._decoder: codecs.IncrementalDecoder | None = None
        if isinstance(stream, io.TextIOBase) or hasattr(stream, "encoding"):
            if not text:
                raise OptionError(
                    "This format is bytes and the stream takes text: give a binary one, perhaps its .buffer."
                )
            self._decoder = codecs.getincrementaldecoder("utf-8")()

    def write(self, data: Any) -> int:
        content = bytes(data)
        try:
            if self._decoder is not None:
                self._stream.write(self._decoder.decode(content))
            else:
                self._write_all(memoryview(content))
        except BrokenPipeError:
            raise  # whoever reads it has gone, which is for the caller to judge
        except OSError as error:
            raise TorchreelError(f"The stream could not be written ({error.strerror or error}).") from error
        except UnicodeEncodeError as error:
            raise OptionError(
                f"The stream cannot hold the text {error.object[error.start : error.end]!r} in {error.encoding}: "
                "open it with encoding='utf-8', or in binary mode."
            ) from None
        return len(content)

    def _write_all(self, rest: memoryview) -> None:
        """An unbuffered stream may take a part at a time."""
        while rest:
            count = self._stream.write(rest)
            if not isinstance(count, int):
                if isinstance(self._stream, io.IOBase):
                    raise TorchreelError("The stream takes no more for now: give one that blocks, or a buffered one.")
                return  # an object that only has write(), and takes it all
            rest = rest[count:]

    def finish(self) -> None:
        flush = getattr(self._stream, "flush", None)
        if flush is not None:
            flush()
