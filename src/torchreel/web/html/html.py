"""Reel -> one HTML file: the viewer's page, with the answers to its questions and the calls of the timeline in it.

It opens from disk. Its policy allows the one script and the one style sheet that are in it, by their hashes, and no
connection. All that comes from the reel is gzipped and in base64, so nothing of it is ever markup. The document has
one element for each blob; the first one, `reel`, tells the page what is where:

    answers     a path, a query and the number of a blob, for each question of torchreel.web.stored_questions
    calls       columns of torchreel.web.html.calls, lane after lane: `timeline` to draw them, `details` to tell of one
    curve       memory over time
    totals      calls and self time of each label, of the whole run
    cut         null, or what part of the calls is in the file
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from typing import Any, BinaryIO

from torchreel.errors import EdgeError, OptionError, TorchreelError, ViewerError
from torchreel.export.output import Progress, Target, writing
from torchreel.reel import Reel
from torchreel.reel.sizes import parse_size
from torchreel.web.answers import Answers
from torchreel.web.html.budget import Kept, KeptCurve, Room, fitting, fitting_curve
from torchreel.web.html.calls import Calls
from torchreel.web.html.planes import compressed
from torchreel.web.server import PAGE
from torchreel.web.stored_questions import SOURCES, STORED

VERSION = 1
BUDGET = "25MB"
_LONGEST_NS = 1 << 53
"""Numbers of JavaScript's are exact up to here."""
_BYTES_PER_CALL = 8
"""However well calls are compressed, a file has at most one for so many bytes: the browser must hold them all."""
_SLACK = 4096
"""For the elements around the blobs."""


def write(
    reel: Reel,
    target: Target,
    progress: Progress,
    budget: int | str = BUDGET,
    sources: bool = True,
    other: Reel | None = None,
) -> None:
    """Write the page. `other` is a second reel, to compare with; without `sources` no text of a file is in it."""
    page = _Page.read()
    content = _Content(reel, other, sources)
    data = content.blobs(parse_size(budget), page.size)
    with writing(target) as file:
        page.write(file, data)
    progress(len(content.calls), len(content.calls))


class _Page:
    """The built page: one script, one style sheet, and what stands around them."""

    def __init__(self, script: str, style: str) -> None:
        self._script = script
        self._style = style

    @classmethod
    def read(cls) -> _Page:
        if not (PAGE / "page.js").is_file():
            raise ViewerError("The viewer's page is not built: run 'make viewer' in the checkout first.")
        script, style = ((PAGE / name).read_text().replace("\r", "") for name in ("page.js", "page.css"))
        for text, end in ((script, "</script"), (script, "<!--"), (style, "</style")):
            if end in text.lower():
                raise ViewerError(f"The viewer's page cannot stand in one file, because it holds {end!r}.")
        return cls(script, style)

    @property
    def size(self) -> int:
        return len(self._script.encode()) + len(self._style.encode())

    def write(self, file: BinaryIO, blobs: list[bytes]) -> None:
        policy = (
            f"default-src 'none'; script-src 'sha256-{_hash(self._script)}'; style-src 'sha256-{_hash(self._style)}'; "
            "img-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'"
        )
        file.write(_HEAD.format(policy=policy, style=self._style).encode())
        for number, blob in enumerate(blobs):
            file.write(f'<script type="text/plain" id="reel-{number}">'.encode())
            file.write(base64.b64encode(blob))
            file.write(b"</script>\n")
        file.write(_TAIL.format(script=self._script).encode())


class _Content:
    """What of the reel is in the file."""

    def __init__(self, reel: Reel, other: Reel | None, sources: bool) -> None:
        self._reel = reel
        self._answers = Answers(reel, other)
        self._viewed = self._answers.viewed
        self._questions = {**STORED, **(SOURCES if sources else {})}
        if self._viewed.end >= _LONGEST_NS:
            raise OptionError(f"{reel.path.name} is {self._viewed.end} ns long, which a page cannot count exactly.")
        self.calls = Calls.read(self._viewed)

    def blobs(self, budget: int, page: int) -> list[bytes]:
        """The blobs, the first of which tells what the others are. They fit, with the page, into the budget."""
        blobs = [b""]
        stored = []
        for path, queries in self._questions.items():
            for query in queries(self._viewed):
                stored.append([path, query, len(blobs)])
                blobs.append(compressed(self._answer(path, query)))
        head: dict[str, Any] = {
            "version": VERSION,
            "view": f"torchreel view {shlex.quote(self._reel.path.name)}",
            "sql": f"torchreel sql {shlex.quote(self._reel.path.name)}",
            "answers": stored,
            "kernels": self.calls.has_kernels,
            "totals": self.calls.totals(),
            "calls": {"lengths": self.calls.lengths.tolist()},
        }
        fixed = page + _SLACK + _in_base64([compressed(Answers.encoded(head)), *blobs])
        if fixed >= budget:
            raise OptionError(
                f"The page and its answers alone take {fixed:,} bytes, and the file may have {budget:,}: give a larger"
                " budget, or leave out the source."
            )
        room = (budget - fixed) * 3 // 4
        curve = fitting_curve(self._viewed.curve, self._viewed.end, room)
        left = room - (len(curve.bytes) if curve else 0)
        kept = fitting(self.calls, Room(left, budget // _BYTES_PER_CALL))
        self._add(head, blobs, kept, curve)
        blobs[0] = compressed(Answers.encoded(head))
        return blobs

    def _answer(self, path: str, query: dict[str, str]) -> bytes:
        """The answer as the server gives it; a refusal is one, too."""
        try:
            # Kernels of devices are not in the file: lanes are numbered without them.
            asked = {"hide": "kernel"} if path == "lanes" and self.calls.has_kernels else query
            return Answers.encoded({"answer": self._answers.answer("GET", path, asked, b"")})
        except TorchreelError as error:
            if not isinstance(error, (OptionError, EdgeError)):
                raise
            return Answers.encoded({"error": str(error)})

    def _add(self, head: dict[str, Any], blobs: list[bytes], kept: Kept, curve: KeptCurve | None) -> None:
        head["calls"] = {
            "lengths": self.calls.lengths_of(kept.chosen).tolist(),
            "timeline": {"blob": len(blobs), "columns": kept.timeline_columns},
            "details": {"blob": len(blobs) + 1, "columns": kept.detail_columns},
            "texts": len(blobs) + 2,
        }
        blobs += [kept.timeline, kept.details, kept.texts]
        head["curve"] = None
        if curve is not None:
            head["curve"] = {
                "blob": len(blobs),
                "columns": curve.planes.columns,
                "events": len(curve.curve.times),
                "step_ns": curve.step_ns,
            }
            blobs.append(curve.bytes)
        head["cut"] = None if kept.is_whole else _cut(kept)


def _cut(kept: Kept) -> dict[str, Any]:
    return {
        "calls": int(kept.chosen.sum()),
        "all": len(kept.chosen),
        "steps": [[step.number, step.begin, step.end] for step in kept.steps],
        "threshold_ns": kept.threshold_ns,
    }


def _in_base64(blobs: list[bytes]) -> int:
    """How many bytes of a file they take, each in an element of its own."""
    return sum(-(-len(blob) // 3) * 4 + 64 for blob in blobs)


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>torchreel</title>
<style>{style}</style>
</head>
<body>
<div id="page"><p class="starting">Reading the reel …</p></div>
<noscript>The viewer draws with JavaScript, which is switched off in this browser.</noscript>
"""
_TAIL = """<script>{script}</script>
</body>
</html>
"""
