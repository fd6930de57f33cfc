"""Jobs for the process that compiles: one after the other, in the background, and each but once.

The process is started with the first job, and ends when there has been none for a while, or with this one. A child that
is forked has a queue of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from typing import Any

import msgspec

from torchreel.graphs.inductor.job import Answer, Job, receive, send

_IDLE = 20.0  # seconds
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from torchreel.graphs.inductor.worker import main; main()"
)
_ENDED = "The process that compiles ended before it answered."


class Pending:
    """A job on its way. Its owners are told when the answer is there; without any it is not begun."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.answer: Answer | None = None
        self.process = os.getpid()
        self._owners: list[weakref.ref[Any]] = []
        self._lock = threading.Lock()
        self._done = threading.Event()

    def tell(self, owner: Any) -> None:
        """Have owner.answered() called, from whatever thread: now, if the answer is there."""
        with self._lock:
            self._owners.append(weakref.ref(owner))
            if self.answer is None:
                return
        owner.answered()

    def is_wanted(self) -> bool:
        with self._lock:
            return any(owner() is not None for owner in self._owners)

    def give(self, answer: Answer) -> None:
        with self._lock:
            self.answer = answer
            owners = [owner() for owner in self._owners]
        self._done.set()
        for owner in owners:
            if owner is not None:
                owner.answered()

    def wait(self, timeout: float | None) -> bool:
        """Whether there is an answer now. In a child that was forked meanwhile there never will be."""
        return self.answer is not None or (self.process == os.getpid() and self._done.wait(timeout))


class LoweringQueue:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[bytes, Pending] = {}
        self._waiting: queue.SimpleQueue[tuple[bytes, Pending] | weakref.ref[Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False

    def submit(self, job: Job, owner: Any) -> Pending:
        """A job that is known already gives the same, whoever asked for it first."""
        key = msgspec.msgpack.encode(job)
        with self._lock:
            pending = self._known.get(key)
            is_new = pending is None
            if pending is None:
                pending = self._known[key] = Pending(job)
        pending.tell(owner)
        if is_new:
            self._put((key, pending))
        return pending

    def run(self, asker: Any) -> None:
        """Have asker.ask() called in the background, if it is still there."""
        self._put(weakref.ref(asker))

    def _put(self, one: tuple[bytes, Pending] | weakref.ref[Any]) -> None:
        with self._lock:
            self._waiting.put(one)
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="torchreel lowering", daemon=True)
                with contextlib.suppress(RuntimeError):  # the interpreter is about to end
                    thread.start()
                    self._thread = thread

    def _work(self) -> None:
        while True:
            try:
                one = self._waiting.get(timeout=_IDLE)
            except queue.Empty:
                with self._lock:
                    if not self._waiting.empty():
                        continue
                    self._thread = None
                    process, self._process = self._process, None
                _end(process)
                return
            if isinstance(one, tuple):
                self._do(*one)
            elif (asker := one()) is not None:
                asker.ask()
                del asker

    def _do(self, key: bytes, pending: Pending) -> None:
        answer = self._answer(pending) if pending.is_wanted() else None
        if answer is None or answer.refusal == _ENDED:
            with self._lock:
                del self._known[key]  # who asks again may be luckier
        pending.give(answer or Answer("", [], [], "Nobody waited for it."))

    def _answer(self, pending: Pending) -> Answer:
        try:
            if self._over:
                raise OSError("the interpreter is about to end")
            process = self._process_with(pending.job)
            assert process.stdout is not None
            answer = receive(process.stdout, Answer)  # type: ignore[arg-type]
        except (OSError, ValueError) as error:
            return Answer("", [], [], f"The process that compiles cannot be used: {error}.")
        if answer is None:
            self._stop()  # it may not be dead yet, and must not get the next job
            return Answer("", [], [], _ENDED)
        return answer

    def _process_with(self, job: Job) -> subprocess.Popen[bytes]:
        """The process, with the job sent to it. One that ended since its last answer is replaced."""
        if (process := self._process) is not None:
            with contextlib.suppress(BrokenPipeError):
                send(process.stdin, job)  # type: ignore[arg-type]
                return process
        self._stop()
        process = self._process = _started()
        send(process.stdin, job)  # type: ignore[arg-type]
        return process

    def end(self) -> None:
        """There will be no more answers."""
        self._over = True
        self._stop()

    def _stop(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        _end(process)

    def leave(self) -> None:
        """In a child that was forked: its parent's process must not wait for the child to end as well."""
        process = self._process
        for stream in (process.stdin, process.stdout) if process is not None else ():
            if stream is not None:
                stream.raw.close()  # type: ignore[attr-defined]  # the lock of the buffer may be held


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """End a process with its children."""
    if process is None:
        return
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _started() -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise OSError("this Python does not know its own program")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_LOGS", "OMP_"))}
    environment |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", _START, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )


_queue = LoweringQueue()


def the_queue() -> LoweringQueue:
    return _queue


def _after_fork() -> None:
    global _queue
    _queue.leave()
    _abandoned.append(_queue)  # its locks may be held by threads that are not here
    _queue = LoweringQueue()


_abandoned: list[LoweringQueue] = []
os.register_at_fork(after_in_child=_after_fork)
atexit.register(lambda: _queue.end())
