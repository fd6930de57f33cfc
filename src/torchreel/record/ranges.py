"""The user's own ranges and marks."""

from __future__ import annotations

import contextlib

from torchreel import _core


class range(_core.Range, contextlib.ContextDecorator):  # noqa: N801 - named as its users name it
    """A named span of time: `with torchreel.range("step"): ...`, or `@torchreel.range("load")`.

    Seen by every observer of torch's, torch.profiler included. Costs next to nothing while none runs.
    """


def mark(name: str | bytes) -> None:
    """Mark this moment."""
    if _core.recording():
        _core.mark(name)
