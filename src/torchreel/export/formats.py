"""The formats that reels and tapes are exported to: one row each, and a module that writes it.

To add a format, write a module with `write(source, target, progress)` and give it a row here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """What a file of this format is called, and what opens it."""

    module: str
    """The module that writes it. It is imported when it is needed: the command's help needs no Arrow."""
    ending: str
    opened_by: str
    is_text: bool = True
    """Whether an open stream of text can be written, and a terminal can show it."""
    of_tapes: bool = False
    """Whether it is written from a tape, or from the tape in a reel."""
    options: tuple[str, ...] = ()
    """What else `write` takes, by name."""

    @property
    def write(self) -> Callable[..., None]:
        function: Callable[..., None] = importlib.import_module(self.module).write
        return function


ALL = {
    "chrome": Format(
        "torchreel.export.chrome.chrome", ".json.gz", "open it in chrome://tracing or at https://ui.perfetto.dev"
    ),
    "perfetto": Format(
        "torchreel.export.perfetto.perfetto", ".pftrace", "open it at https://ui.perfetto.dev", is_text=False
    ),
    "speedscope": Format("torchreel.export.speedscope", ".speedscope.json", "open it at https://www.speedscope.app"),
    "stacks": Format(
        "torchreel.export.stacks",
        ".stacks.txt",
        "draw it with flamegraph.pl, inferno-flamegraph or https://www.speedscope.app",
    ),
    "snapshot": Format(
        "torchreel.export.snapshot.snapshot",
        ".pickle",
        "drop it on https://pytorch.org/memory_viz, or run python -m torch.cuda._memory_viz",
        is_text=False,
    ),
    # Written by the viewer's room, which this one does not import: it is named like every other module of the table.
    "html": Format(
        "torchreel.web.html.html",
        ".html",
        "open it in a browser; it needs no server and no network",
        options=("budget", "sources", "other"),
    ),
    "execution-trace": Format(
        "torchreel.export.execution_trace.execution_trace",
        ".et.json",
        "give it to the tools of Chakra or to et_replay",
        of_tapes=True,
    ),
}
FORMATS = {name: format for name, format in ALL.items() if not format.of_tapes}
TAPE_FORMATS = {name: format for name, format in ALL.items() if format.of_tapes}
