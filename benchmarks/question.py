"""A benchmark is a module whose docstring begins with one question, and whose `measure(quick)` answers it."""

from __future__ import annotations

import importlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from benchmarks.result import Result

NAMES = (
    "op_cost",
    "loop_slowdown",
    "post_processing",
    "size",
    "report",
    "caching",
    "history",
    "snapshot_dump",
    "simulator",
    "tape_cost",
    "tape_capture",
    "tape_size",
    "tape_wrappers",
    "graphs",
    "graphs_first_call",
    "graphs_memory",
    "graphs_overhead",
    "graphs_inductor",
    "graphs_share",
    "edge",
    "viewer",
    "viewer_frames",
    "atlas",
)
# Only when named: they need valgrind, other tools, snapshots and traces that are not in the repository, or are about
# bytes alone.
OPTIONAL = ("instructions", "prediction", "export_size", "import_traces")


def ask(name: str, quick: bool) -> tuple[str, list[Result]]:
    """The question and its answer, found in a process of its own: none inherits what another left behind."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_ask, name, quick).result()


def _ask(name: str, quick: bool) -> tuple[str, list[Result]]:
    module = importlib.import_module(f"benchmarks.{name}")
    return (module.__doc__ or name).splitlines()[0], module.measure(quick)
