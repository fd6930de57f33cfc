"""A reel in a notebook: its summary, and the page of an export in a frame. Nothing here needs IPython.

Both are plain HTML, so they are shown wherever the notebook is: on another machine, and in a saved file.
"""

from __future__ import annotations

import io
from html import escape

from torchreel.analyze import averages, summary, typical_step
from torchreel.analyze.units import time_text
from torchreel.errors import TorchreelError
from torchreel.export import export
from torchreel.reel import Reel

BUDGET = "5MB"
_ROWS = 10


class View:
    """The viewer's page with a reel in it, which a notebook shows as a frame."""

    def __init__(self, document: str, height: int) -> None:
        self._document = document
        self._height = height

    def _repr_html_(self) -> str:
        # The frame has an origin of its own, without a name: its script reaches neither the notebook nor its cookies.
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(self._document)}" '
            f'style="width: 100%; height: {self._height}px; border: 1px solid #8884; border-radius: 8px"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<View of {len(self._document):,} characters: a notebook shows it>"


def view(reel: Reel, height: int, budget: int | str | None, sources: bool, other: Reel | None) -> View:
    page = io.BytesIO()
    export(reel, page, "html", budget=BUDGET if budget is None else budget, sources=sources, other=other)
    return View(page.getvalue().decode(), int(height))


def summary_html(reel: Reel) -> str:
    """What a reel holds and its costliest ops, as HTML without a script. Never raises for what is in the reel."""
    try:
        return "".join(_parts(reel))
    except TorchreelError as error:
        return f"<pre>{escape(repr(reel))}\n{escape(str(error))}</pre>"


def _parts(reel: Reel) -> list[str]:
    head = summary(reel)
    step = typical_step(reel)
    facts = [
        f"{head.ops:,} ops",
        f"{head.steps:,} steps" if head.steps else "",
        f"a step takes {time_text(step.median_ns)}" if step is not None and step.steps else "",
        f"{head.processes:,} processes" if head.processes > 1 else "",
        f"{time_text(head.wall_ns)} in all",
        *(f"peak memory of {escape(peak.device)} {peak.bytes / 2**20:,.1f} MiB" for peak in head.peak_memory[:1]),
    ]
    notes = [
        *(f"{name} did not close the recording." for name in head.incomplete_processes[:3]),
        *([f"{head.lost_events:,} events are lost."] if head.lost_events else []),
        *reel.left_out,
    ]
    return [
        f"<div><b>{escape(reel.path.name)}</b>: {', '.join(filter(None, facts))}.</div>",
        *(f"<div>{escape(note)}</div>" for note in notes),
        _table(reel),
        "<div>Next: <code>reel.view()</code>, <code>torchreel.averages(reel)</code>, <code>reel.sql(...)</code></div>",
    ]


def _table(reel: Reel) -> str:
    rows = averages(reel, limit=_ROWS).to_pylist()
    if not rows:
        return ""
    lines = []
    for row in rows:
        numbers = (f"{row['self_percent']:.1f} %", time_text(row["self_ns"]), f"{row['calls']:,}")
        lines.append(_cell(escape(row["name"]), "left") + "".join(map(_cell, numbers)))
    cells = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr><th>op</th><th>self %</th><th>self</th><th>calls</th></tr>{cells}</table>"


def _cell(text: str, side: str = "right") -> str:
    return f'<td style="text-align: {side}">{text}</td>'
