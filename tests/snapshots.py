"""Real memory snapshots of CUDA programs. They are not ours to pass on: a machine that has none skips their tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[2] / "shared" / "data" / "snapshots"
_DIRECTORY = Path(os.environ.get("TORCHREEL_SNAPSHOTS", _BESIDE))

SNAPSHOTS: list[Path] = sorted(_DIRECTORY.glob("*.pickle"))


def snapshot(name: str) -> Path:
    """The snapshot of this name, without its ending; skips the test where there is none."""
    path = _DIRECTORY / f"{name}.pickle"
    if not path.is_file():
        pytest.skip(f"there is no real snapshot {name}: name their directory in TORCHREEL_SNAPSHOTS")
    return path
