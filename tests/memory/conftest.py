"""What the tests of memory share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_history_left() -> Iterator[None]:
    """A history that goes on would cost the tests after it."""
    yield
    if "torchreel.memory" in sys.modules:
        import torchreel

        torchreel.memory.record_history(None)
        torchreel.memory.set_metadata("")
