"""The processes that read, resolve and write files at the same time, each a share of them."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from torchreel._collector import collector_paused
from torchreel.atlas.generate.reader import Context, Facts, Reader, Resolved, Task
from torchreel.atlas.generate.worker import Know, Page, Read, Request, Resolve, receive, send
from torchreel.atlas.site.facts import Site
from torchreel.atlas.symbols import Catalog, FileNames
from torchreel.errors import AtlasError

_Answer = TypeVar("_Answer")
Written = Callable[[list[str]], None]
"""Is told the paths of the files that were written for a page."""
_MOST_WAITING = 64
_PIPE = 1 << 20  # bytes: most messages go through at once, and nobody is woken twice for one
LITTLE = 1_500_000
"""So many bytes of source are read by one process in the time that others take to start and to be told."""


class Pool(Protocol):
    """Who does the three rounds of `reader`."""

    def read(self, tasks: Sequence[Task], each: Callable[[Task, Facts | None], None]) -> None: ...

    def know(self, files: list[FileNames], counts: dict[str, int], documents: int) -> None: ...

    def resolve(self, each: Callable[[Resolved], None]) -> None: ...

    def pages(self, contexts: Iterable[Context], about: Site, split: frozenset[str], each: Written) -> None: ...

    def close(self) -> None: ...


def pool_of(site: Path, jobs: int, size: int) -> Pool:
    """Processes, or, for few bytes of source, this process itself."""
    return Here(site) if jobs < 2 or size <= LITTLE else Processes(site, jobs)


class Here:
    """All in this process."""

    def __init__(self, site: Path) -> None:
        self._reader = Reader(site)

    def read(self, tasks: Sequence[Task], each: Callable[[Task, Facts | None], None]) -> None:
        with collector_paused():
            for task in tasks:
                each(task, self._reader.read(task))

    def know(self, files: list[FileNames], counts: dict[str, int], documents: int) -> None:
        self._reader.know(Catalog(files), counts, documents)

    def resolve(self, each: Callable[[Resolved], None]) -> None:
        for one in self._reader.resolve():
            each(one)

    def pages(self, contexts: Iterable[Context], about: Site, split: frozenset[str], each: Written) -> None:
        for context in contexts:
            each(self._reader.page(context, about, split))

    def close(self) -> None:
        pass


class Processes:
    """Workers, each driven by a thread of this process."""

    def __init__(self, site: Path, jobs: int) -> None:
        self._workers = [_Worker(site) for _ in range(jobs)]
        self._threads = ThreadPoolExecutor(jobs)
        self._lock = threading.Lock()
        self._owner: dict[int, _Worker] = {}

    def read(self, tasks: Sequence[Task], each: Callable[[Task, Facts | None], None]) -> None:
        """Whoever is free takes the next file, and keeps it for the other rounds."""
        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            waiting.put(task)

        def work(worker: _Worker) -> None:
            while True:
                try:
                    task = waiting.get_nowait()
                except queue.Empty:
                    return
                facts = worker.read(task)
                with self._lock:
                    self._owner[task.id] = worker
                    each(task, facts)

        self._all(work)

    def know(self, files: list[FileNames], counts: dict[str, int], documents: int) -> None:
        request = msgspec.msgpack.encode(Know(files, counts, documents))
        self._all(lambda worker: worker.tell(request))

    def resolve(self, each: Callable[[Resolved], None]) -> None:
        def work(worker: _Worker) -> None:
            for one in worker.resolve():
                with self._lock:
                    each(one)

        self._all(work)

    def pages(self, contexts: Iterable[Context], about: Site, split: frozenset[str], each: Written) -> None:
        """Contexts are made as they are asked for: all of them at once would take much memory."""
        waiting: dict[_Worker, queue.SimpleQueue[Context | None]] = {
            worker: queue.SimpleQueue() for worker in self._workers
        }
        room = threading.Semaphore(_MOST_WAITING)

        def work(worker: _Worker) -> None:
            while (context := waiting[worker].get()) is not None:
                room.release()
                written = worker.ask(Page(context, about, sorted(split)), list[str])
                with self._lock:
                    each(written)

        working = [self._threads.submit(work, worker) for worker in self._workers]
        try:
            for context in contexts:
                while not room.acquire(timeout=1):
                    _raise_first(working)
                waiting[self._owner[context.id]].put(context)
        finally:
            for one in waiting.values():
                one.put(None)
        for done in working:
            done.result()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._threads.shutdown(cancel_futures=True)

    def _all(self, work: Callable[[_Worker], None]) -> None:
        """Let every worker's thread do this, and wait. The first error is raised here."""
        for done in [self._threads.submit(work, worker) for worker in self._workers]:
            done.result()


class _Worker:
    """One process. One that ends unasked is started again, and the file that it ended with is read as plain text."""

    def __init__(self, site: Path) -> None:
        self._site = site
        self._process = self._start()
        self._done: list[Task] = []

    def read(self, task: Task) -> Facts | None:
        answer = self._ask(Read(task))
        if answer is None:
            self._begin_anew()
            task = msgspec.structs.replace(task, plain=True)
            answer = self._ask(Read(task))
            if answer is None:
                raise AtlasError(f"{task.path} ends the process that reads it: leave it out with --exclude.")
        self._done.append(task)
        facts: Facts | None = msgspec.msgpack.decode(answer, type=Facts | None)
        return facts

    def tell(self, request: bytes) -> None:
        self._send(request)
        self._received()

    def resolve(self) -> Iterator[Resolved]:
        decoder = msgspec.msgpack.Decoder(Resolved | None)
        self._send(msgspec.msgpack.encode(Resolve()))
        while True:
            one = decoder.decode(self._received())
            if one is None:
                return
            yield one

    def ask(self, request: Request, kind: type[_Answer]) -> _Answer:
        self._send(msgspec.msgpack.encode(request))
        answer: _Answer = msgspec.msgpack.decode(self._received(), type=kind)
        return answer

    def close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _begin_anew(self) -> None:
        self.close()
        self._process = self._start()
        for task in self._done:
            if self._ask(Read(task)) is None:
                raise AtlasError(f"{task.path} ends the process that reads it: leave it out with --exclude.")

    def _ask(self, request: Request) -> bytes | None:
        """The answer; None if the process has ended."""
        try:
            self._send(msgspec.msgpack.encode(request))
        except BrokenPipeError:
            return None
        return receive(_open(self._process.stdout))

    def _send(self, data: bytes) -> None:
        send(_open(self._process.stdin), data)

    def _received(self) -> bytes:
        data = receive(_open(self._process.stdout))
        if data is None:
            code = self._process.wait()
            raise AtlasError(f"A process that reads sources ended with code {code}: run with --jobs 1 to see why.")
        return data

    def _start(self) -> subprocess.Popen[bytes]:
        # -P: a file beside the user's program must not be taken for a module of ours.
        command = [sys.executable, "-P", "-m", "torchreel.atlas.generate.worker", str(self._site)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, pipesize=_PIPE)


def _raise_first(working: Sequence[Future[None]]) -> None:
    """Raise what ended a thread, if one has ended."""
    for one in working:
        if one.done():
            one.result()


def _open(stream: Any) -> Any:
    assert stream is not None  # both are pipes
    return stream
