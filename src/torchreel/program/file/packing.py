"""A program as bytes and back: msgpack, compressed by zstd."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa

from torchreel.errors import TapeError, first_line
from torchreel.program.file.header import PLAIN, ZSTD, corrupt
from torchreel.program.file.migrate import migrate
from torchreel.program.model import FORMAT, Program

# A few bytes of zstd can stand for gigabytes: a program that would unpack to more than this is stored as it is.
_FREE_UNPACKED = 16 << 20
_MOST_EXPANSION = 1000


def encode(path: Path, program: Program) -> bytes:
    """The program as msgpack."""
    try:
        try:
            return msgspec.msgpack.encode(program, enc_hook=_of_plain_type)
        except UnicodeEncodeError:
            plain = msgspec.to_builtins(program, builtin_types=(bytes,), enc_hook=_of_plain_type)
            return msgspec.msgpack.encode(_without_surrogates(plain))
    except (OverflowError, ValueError, RecursionError) as error:
        raise TapeError(
            f"The tape cannot be saved as {path} ({error}): one of its arguments, results or constants is too large."
        ) from None
    except TypeError as error:
        raise TapeError(
            f"The tape cannot be saved as {path} ({error}): one of its arguments or results is no plain value."
        ) from None


def _of_plain_type(value: object) -> object:
    """A number or text of a class of its own, as torch's version and the numbers of NumPy are."""
    for plain in (str, int, float):
        if isinstance(value, plain):
            return str.__str__(value) if isinstance(value, str) else plain(value)
    raise TypeError(f"a {type(value).__name__} has no place in a file")


def _without_surrogates(value: object) -> object:
    """Names of files on disk may hold bytes that are no text; Python shows them as characters that no file may hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def decode(path: Path, content: bytes, version: int) -> Program:
    """The program in msgpack of any version that there was."""
    try:
        if version == FORMAT:
            return msgspec.msgpack.decode(content, type=Program)
        return msgspec.convert(migrate(msgspec.msgpack.decode(content, strict=False), version, FORMAT), Program)
    except RecursionError:
        raise corrupt(path, "its program is nested too deep") from None
    except Exception as error:  # a migration, too, meets whatever the file holds
        raise corrupt(path, f"its program cannot be read: {first_line(error, 200)}") from None


def pack(program: bytes) -> tuple[int, bytes]:
    """The codec, and what is stored."""
    stored: bytes = pa.Codec("zstd", compression_level=9).compress(program, asbytes=True)
    if len(stored) >= len(program) or len(program) > _most_unpacked(len(stored)):
        return PLAIN, program
    return ZSTD, stored


def unpack(path: Path, codec: int, stored: bytes, size: int) -> bytes:
    if codec == PLAIN:
        return stored
    if codec != ZSTD or size > _most_unpacked(len(stored)):
        raise corrupt(path, "its program is packed in an unknown way")
    try:
        unpacked: bytes = pa.Codec("zstd").decompress(stored, size, asbytes=True)
    except (pa.ArrowException, OSError, ValueError):
        raise corrupt(path, "its program cannot be unpacked") from None
    return unpacked


def _most_unpacked(stored: int) -> int:
    return _FREE_UNPACKED + _MOST_EXPANSION * stored
