"""Sources of PyTorch 2.6.0 to read. They are not ours to pass on: a machine that has none skips their tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[3] / "shared" / "data" / "pytorch-sources"
_DIRECTORY = Path(os.environ.get("TORCHREEL_PYTORCH_SOURCES", _BESIDE))

FIVE = (
    "torch/csrc/autograd/profiler_legacy.cpp",
    "tools/autograd/gen_trace_type.py",
    "torch/csrc/jit/mobile/profiler_edge.h",
    "torch/csrc/cuda/memory_snapshot.cpp",
    "torch/_inductor/cudagraph_trees.py",
)
"""What the atlas is measured by."""


def directory() -> Path:
    """The folder that holds them; skips the test where there is none."""
    if not _DIRECTORY.is_dir():
        pytest.skip("there are no sources of PyTorch: name their directory in TORCHREEL_PYTORCH_SOURCES")
    return _DIRECTORY
