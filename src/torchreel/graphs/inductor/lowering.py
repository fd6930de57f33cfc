"""Clusters of one recording on their way to being Inductor's kernels: what was asked for, and what became of it."""

from __future__ import annotations

import bisect
import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from torchreel import _graphs
from torchreel.errors import OptionError
from torchreel.graphs.inductor.clusters import Cluster, clusters_of
from torchreel.graphs.inductor.job import ENTRY, Job
from torchreel.graphs.inductor.queue import Pending, the_queue
from torchreel.graphs.options import GraphOptions
from torchreel.program.model import Program

_MOST = 32  # kernels of one recording; the clusters of most ops come first
_SHOWN = 6  # names of ops


@dataclass
class _Kernel:
    """One kernel, for clusters that are alike."""

    clusters: list[Cluster]
    slots: list[list[int]]  # of each cluster
    pending: Pending | None = None
    failure: str = ""  # to load it


class Lowering:
    """The generated kernels of one recording. It asks for them, and gives them to the replay when all are compiled."""

    def __init__(
        self,
        program: Program,
        native: _graphs.StaticProgram,
        replay: _graphs.Replay,
        threads: int,
        options: GraphOptions,
    ) -> None:
        self._program, self._native, self._replay = program, native, replay
        self._threads, self._options = threads, options
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._process = os.getpid()
        self._told = False
        self._failure = ""
        self._kernels: list[_Kernel] = []
        the_queue().run(self)

    def ask(self) -> None:
        """Look for clusters in the background: that may take longer than recording."""
        try:
            self._ask()
        except Exception as error:  # nobody is there to whom it could be raised
            self._failure = f"{type(error).__name__}: {error}"
        self._asked.set()
        self.answered()

    def _ask(self) -> None:
        program, native, exact = self._program, self._native, self._options.exact
        found: dict[tuple[int, bytes], tuple[Job, _Kernel]] = {}
        for cluster in clusters_of(program, native, exact):
            job, slots = cluster.job(program, self._threads, exact)
            # A forward and the segments of a backward are checked each for itself: one may never run.
            key = (bisect.bisect_right(native.boundaries, cluster.begin), msgspec.msgpack.encode(job))
            _, kernel = found.setdefault(key, (job, _Kernel([], [])))
            kernel.clusters.append(cluster)
            kernel.slots.append(slots)
        chosen = sorted(found.values(), key=lambda each: -len(each[0].ops) * len(each[1].clusters))[:_MOST]
        self._kernels = [kernel for _, kernel in chosen]
        for job, kernel in chosen:
            kernel.pending = the_queue().submit(job, self)

    def answered(self) -> None:
        """By whatever thread: one of the kernels is there, or will never be."""
        pending = [kernel.pending for kernel in self._kernels]
        if not pending or any(one is None or one.answer is None for one in pending):
            return
        with self._lock:
            if self._told:
                return
            self._told = True
        for kernel in self._kernels:
            self._tell(kernel)
        self._replay.lowered_all(self._options.inductor == "always")

    def _tell(self, kernel: _Kernel) -> None:
        answer = kernel.pending.answer if kernel.pending is not None else None
        if answer is None or answer.refusal:
            return
        clusters = [
            (one.begin, one.end, slots, [*one.outputs, *(each for each in one.written if each not in one.discarded)],
             one.written)
            for one, slots in zip(kernel.clusters, kernel.slots, strict=True)
        ]  # fmt: skip
        pointers = [(each.slot, each.scratch, each.offset) for each in answer.pointers]
        try:
            self._replay.lower(answer.library, ENTRY, pointers, answer.scratch, clusters)
        except RuntimeError as error:
            kernel.failure = str(error)

    def wait(self, timeout: float | None) -> bool:
        """Whether all kernels that were asked for are there, or will never be."""
        if self._process != os.getpid():
            return self._told  # the one who would ask is not in a child that was forked meanwhile
        end = None if timeout is None else time.monotonic() + timeout
        return self._asked.wait(timeout) and all(
            kernel.pending is None or kernel.pending.wait(None if end is None else max(0.0, end - time.monotonic()))
            for kernel in self._kernels
        )

    def lines(self) -> list[str]:
        """For people: each kernel and what became of it."""
        if self._failure:
            return [f"no kernels: {self._failure}"]
        rows = {row[0]: row for row in self._replay.clusters()}
        return [self._line(kernel, [rows[one.begin] for one in kernel.clusters if one.begin in rows])
                for kernel in self._kernels]  # fmt: skip

    def _line(self, kernel: _Kernel, rows: list[Any]) -> str:
        names = [op.name.partition("::")[2].partition(".")[0] for op in kernel.clusters[0].ops]
        shown = ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
        times = f", {len(kernel.clusters)} times" if len(kernel.clusters) > 1 else ""
        return f"{len(names)} ops ({shown}){times}: {self._fate(kernel, rows)}"

    def _fate(self, kernel: _Kernel, rows: list[Any]) -> str:
        answer = kernel.pending.answer if kernel.pending is not None else None
        if answer is None:
            return "waits for the compiler"
        if answer.refusal or kernel.failure:
            return f"not used: {answer.refusal or kernel.failure}"
        if not rows or rows[0][2] == "to check":
            return "compiled, and checked against the exact kernels at the next calls"
        exact, generated = (sum(row[column] for row in rows) / 1000 for column in (4, 5))
        measured = f"{generated:.1f} µs instead of {exact:.1f}"
        if rows[0][2] == "used":
            return f"in use, {measured}"
        return f"not used: {rows[0][3]}" + (f" ({measured})" if exact else "")


def wait(graphed: Any, timeout: float | None = None) -> bool:
    """Wait until no kernel of a function that was graphed with inductor=True is on its way from the compiler.

    The next calls check the kernels and use them. False where the time was over before.
    """
    from torchreel.graphs.call.entry import Graphed
    from torchreel.graphs.compile.compiled import parts_of

    parts = [graphed] if isinstance(graphed, Graphed) else parts_of(graphed)
    if parts is None:
        raise OptionError(
            f"wait() was given {graphed!r}: give what torchreel.graphed() returned, or "
            "torch.compile(backend='torchreel')."
        )
    end = None if timeout is None else time.monotonic() + timeout
    lowerings = [one.lowering for part in parts for one in part.recordings() if one.lowering is not None]
    return all(one.wait(None if end is None else max(0.0, end - time.monotonic())) for one in lowerings)
