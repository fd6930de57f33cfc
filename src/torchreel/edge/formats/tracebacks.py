"""Tracebacks as texts, as exporters keep them -> frames."""

from __future__ import annotations

import re

from torchreel.edge.formats.adapter import Frame

_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d{1,9}), in (?P<function>.+)$', re.MULTILINE)


def frames_of(text: str) -> tuple[Frame, ...]:
    """The frames, the innermost first: it comes last in a traceback."""
    found = [Frame(frame["file"], int(frame["line"]), frame["function"]) for frame in _FRAME.finditer(text)]
    return tuple(reversed(found))


def texts_of(text: str) -> tuple[str, ...]:
    """The source that a traceback shows for each frame, in the order of frames_of."""
    found = list(_FRAME.finditer(text))
    ends = [*(frame.start() for frame in found[1:]), len(text)]
    return tuple(reversed([text[frame.end() : end] for frame, end in zip(found, ends, strict=False)]))
