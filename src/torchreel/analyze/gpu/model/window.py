"""What of a run is looked at: all of it, or one step with the kernels that were launched in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchreel.analyze.gpu.model.graph import Graph
from torchreel.reel.columns import Ints, ints


@dataclass(frozen=True)
class Window:
    """From `start` to `end`, the latest of the nodes `lasts`; `first` is the node at the start of a step."""

    start: int
    end: int
    first: int | None
    lasts: Ints

    @property
    def ns(self) -> int:
        return self.end - self.start


def window_of(graph: Graph, step: int | None) -> Window | None:
    """The window of a step, or of the whole run; None if the process does not have the step."""
    if step is None:
        counts = np.isin(graph.marks.thread, list(graph.marks.launching))
        lasts = np.concatenate((np.flatnonzero(counts), np.arange(graph.starts, len(graph.time))))
        return Window(int(graph.time[lasts].min()), int(graph.time[lasts].max()), None, lasts)
    steps = graph.run.rows("steps", ["step", "start_ns", "end_ns"])
    row = np.flatnonzero(ints(steps, "step") == step)
    if not len(row) or graph.marks.main < 0:
        return None
    limits = np.array([ints(steps, "start_ns")[row[0]], ints(steps, "end_ns")[row[0]]])
    first, last = graph.marks.at(np.full(2, graph.marks.main), limits).tolist()
    kernels = graph.ends + np.flatnonzero(graph.run.kernels.step == step)
    lasts = np.append(kernels, last)
    return Window(int(limits[0]), int(graph.time[lasts].max()), first, lasts)
