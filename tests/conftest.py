"""What all tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_left_recording() -> Iterator[None]:
    """A test that leaves the recorder on would spoil those after it, and hide what it broke."""
    yield
    core = sys.modules.get("torchreel._core")
    assert core is None or not core.recording(), "this test left the recorder on"
