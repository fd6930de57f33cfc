"""The process that reads a share of the files: `python -m torchreel.atlas.generate.worker SITE`, driven by `pool`.

Messages are MessagePack behind their length in 8 bytes. Nothing of the files is executed, and what they hold travels
as plain values.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from torchreel._collector import collector_paused
from torchreel.atlas.generate.reader import Context, Reader, Task
from torchreel.atlas.site.facts import Site
from torchreel.atlas.symbols import Catalog, FileNames


class Know(msgspec.Struct, tag=True):
    """Before round two: what all files define, and in how many documents each name is."""

    files: list[FileNames]
    counts: dict[str, int]
    documents: int


class Read(msgspec.Struct, tag=True):
    """Round one, of one file."""

    task: Task


class Resolve(msgspec.Struct, tag=True):
    """Round two, of all files that were read since the last time."""


class Page(msgspec.Struct, tag=True):
    """Round three, of one file."""

    context: Context
    about: Site
    split: list[str]


Request = Read | Know | Resolve | Page


def send(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """The next message; None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    length = int.from_bytes(head, "little")
    data = stream.read(length)
    return data if len(data) == length else None


def answers(reader: Reader, request: Request) -> Iterator[Any]:
    """What a request is answered with: one message, for `Resolve` one for each file and then an empty one."""
    if isinstance(request, Read):
        yield reader.read(request.task)
    elif isinstance(request, Know):
        reader.know(Catalog(request.files), request.counts, request.documents)
        yield None
    elif isinstance(request, Resolve):
        yield from reader.resolve()
        yield None
    else:
        yield reader.page(request.context, request.about, frozenset(request.split))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    source, target = sys.stdin.buffer, sys.stdout.buffer
    reader = Reader(Path(sys.argv[1]))
    decoder, encoder = msgspec.msgpack.Decoder(Request), msgspec.msgpack.Encoder()
    with collector_paused():
        while (data := receive(source)) is not None:
            for answer in answers(reader, decoder.decode(data)):
                send(target, encoder.encode(answer))


if __name__ == "__main__":
    main()
