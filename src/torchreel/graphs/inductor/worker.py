"""The process that has Inductor compile clusters of ops. Jobs come on its standard input, answers go to its output.

It is a process of its own so that the one that it works for keeps its interpreter, its caches and its settings to
itself; it ends, with the compilers that it started, when that one is gone: even while it is about to import torch.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading

from torchreel.graphs.inductor.job import Job, receive, send


def main() -> None:
    os.nice(10)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what else is printed is no answer
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    from torchreel.graphs.inductor.compile import answer

    while True:
        send(answers, answer(jobs.get()))


def _listen(jobs: queue.SimpleQueue[Job]) -> None:
    """Receive jobs. When the other process is gone, end this one and its compilers at once."""
    while (job := receive(sys.stdin.buffer, Job)) is not None:
        jobs.put(job)
    os.killpg(os.getpgid(0), signal.SIGKILL)
