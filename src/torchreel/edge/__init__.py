"""The edge profiler: one deployed model, in the format in which it is shipped, its backends and its cost."""

from torchreel.edge.entry import include_path
from torchreel.edge.formats.formats import load
from torchreel.edge.profiler import EdgeProfiler, current_edge_profiler

__all__ = ["EdgeProfiler", "current_edge_profiler", "include_path", "load"]
